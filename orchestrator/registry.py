"""The federated methods by name: one line each. Settings are checked against it without importing what it names."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

__all__ = ["METHODS", "Method"]


@dataclass(frozen=True)
class Method:
    """Where a method's client is, and what it needs.

    Attributes:
        client: ``module:class`` of its `orchestrator.methods.base.LocalMethod`.
        rule: key of `mpc_programs.rules.RULES`, by which its updates are aggregated; None: nothing is.
        networks: names of the networks that it can train; none named: all.
        personal: every client has a model of its own, and there is no global one. A test sees that the rule says the
            same; settings and learning know nothing of rules.
    """

    client: str
    rule: str | None
    networks: tuple[str, ...] = ()
    personal: bool = False


METHODS: Mapping[str, Method] = {
    "f2gnn": Method("orchestrator.methods.f2gnn:F2GNN", "f2gnn", ("gcn", "own")),
    "fedavg": Method("orchestrator.methods.fedavg:FedAvg", "fedavg"),
    "local": Method("orchestrator.methods.local_only:Alone", None, personal=True),
    "fedpub": Method("orchestrator.methods.fedpub:FedPub", "fedpub", ("gcn-classifier",), personal=True),
    "fedsage": Method("orchestrator.methods.fedavg:FedAvg", "fedavg", ("sage",)),
    "fedsage+": Method("orchestrator.methods.fedsage.plus:FedSagePlus", "fedavg", ("sage",)),
}
