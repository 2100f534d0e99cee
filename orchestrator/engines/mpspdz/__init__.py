"""Rounds on MP-SPDZ: our programs, compiled and run by an installation that the user made."""
