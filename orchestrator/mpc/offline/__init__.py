"""Correlated randomness, made before a round: by the two servers from oblivious transfer, or by a dealer."""
