"""The user's MP-SPDZ installation: finding, compiling with and running it."""
