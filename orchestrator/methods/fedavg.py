"""FedAvg's client: start from the global model, minimise the cross-entropy. The rule is the plain mean: no scores.

With GraphSAGE as its network this is FedSage (Zhang et al., NeurIPS 2021).
"""

from __future__ import annotations

from orchestrator.methods.adam_training import AdamTraining

__all__ = ["FedAvg"]


class FedAvg(AdamTraining):
    """Adam's moments persist per client, as in the FED-PUB reference code's FedAvg, unless clients are stateless."""
