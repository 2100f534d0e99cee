"""Engines aggregate a cohort's uploads; kept empty so that a server process imports nothing it does not need."""
