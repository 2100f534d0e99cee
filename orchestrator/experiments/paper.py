"""What the paper reports of a round's costs; imports nothing, for pages that only quote it."""

__all__ = ["PAPER"]

PAPER = {"online_seconds": 2.66, "online_megabytes": 3.55}
"""SaFeGNN's figures of one round: MP-SPDZ 0.4.3, all parties on one machine, which is not described further."""
