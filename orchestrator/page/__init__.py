"""The report of runs: one HTML file that needs no network, no scripts, and nobody to explain it."""

__all__ = ["REPORT"]

REPORT = "report.html"
"""The file's name in a run folder, or in that of a comparison."""
