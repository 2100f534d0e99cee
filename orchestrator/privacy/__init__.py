"""Noise for the released model."""
