"""The federated methods by name: one entry each. What a line names is imported when it is needed, and not before."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from importlib import import_module
from typing import Any

__all__ = ["CENTRALISED", "METHODS", "Method", "load"]


@dataclass(frozen=True)
class Method:
    """Where a method's two classes are, and what it needs.

    Attributes:
        client: ``module:class`` of its `orchestrator.methods.base.LocalMethod`.
        settings: ``module:class`` of its `orchestrator.config.MethodSettings`. A module without torch keeps the
            commands that only read settings fast.
        rule: key of `mpc_programs.rules.RULES`, by which its updates are aggregated; None: nothing is.
        networks: names of the networks that it can train; none named: all.
        personal: every client has a model of its own, and there is no global one. A test sees that the rule says the
            same; settings and learning know nothing of rules.
        unaccounted: what clients hear of each other's data besides released models, in words that complete "no epsilon
            is stated: ..."; other clients' updates depend on a client's data then, and no epsilon holds. Empty:
            nothing. A method whose clients prepare together has to say it.
        centralised: it was made for one owner of the whole graph, and `compare --methods` trains it so; `train` as
            `clients` says.
    """

    client: str
    settings: str
    rule: str | None
    networks: tuple[str, ...] = ()
    personal: bool = False
    unaccounted: str = ""
    centralised: bool = False


METHODS: Mapping[str, Method] = {
    "f2gnn": Method(
        "orchestrator.methods.f2gnn:F2GNN", "orchestrator.methods.settings:F2GNNSettings", "f2gnn", ("gcn", "own")
    ),
    "fedavg": Method("orchestrator.methods.fedavg:FedAvg", "orchestrator.methods.settings:FedAvgSettings", "fedavg"),
    "fedprox": Method(
        "orchestrator.methods.fedprox:FedProx", "orchestrator.methods.fair_settings:FedProxSettings", "fedavg"
    ),
    "fairfed": Method(
        "orchestrator.methods.fairfed:FairFed",
        "orchestrator.methods.fair_settings:FairFedSettings",
        "softmax",
        ("gcn", "own"),
    ),
    "glocalfair": Method(
        "orchestrator.methods.glocalfair:GLocalFair",
        "orchestrator.methods.fair_settings:GLocalFairSettings",
        "softmax",
        ("gcn", "own"),
    ),
    "privfairfl": Method(
        "orchestrator.methods.privfairfl:PrivFairFL",
        "orchestrator.methods.fair_settings:PrivFairFLSettings",
        "fedavg",
        ("gcn", "own"),
    ),
    "afed": Method(
        "orchestrator.methods.afed:AFed", "orchestrator.methods.fair_settings:AFedSettings", "fedavg", ("gcn",)
    ),
    "f2pgnn": Method(
        "orchestrator.methods.f2pgnn:F2PGNN",
        "orchestrator.methods.fair_settings:F2PGNNSettings",
        "fedavg",
        ("gcn", "own"),
    ),
    "fedfairgnn": Method(
        "orchestrator.methods.fedfairgnn:FedFairGNN",
        "orchestrator.methods.fair_settings:FedFairGNNSettings",
        "softmax",
        ("gcn", "own"),
    ),
    "fairdual": Method(
        "orchestrator.methods.fairdual:FairDual",
        "orchestrator.methods.settings:FairDualSettings",
        "fedavg",
        ("gcn", "own"),
    ),
    "fairgnn": Method(
        "orchestrator.methods.fairgnn:FairGNN",
        "orchestrator.methods.reference_settings:FairGNNSettings",
        "fedavg",
        ("gcn",),
        centralised=True,
    ),
    "edits": Method(
        "orchestrator.methods.edits:Edits",
        "orchestrator.methods.reference_settings:EditsSettings",
        "fedavg",
        centralised=True,
    ),
    "local": Method(
        "orchestrator.methods.local_only:Alone", "orchestrator.methods.settings:AloneSettings", None, personal=True
    ),
    "fedpub": Method(
        "orchestrator.methods.fedpub:FedPub",
        "orchestrator.methods.settings:FedPubSettings",
        "fedpub",
        ("gcn-classifier",),
        personal=True,
    ),
    "fedgcn": Method(
        "orchestrator.methods.fedgcn:FedGCN",
        "orchestrator.methods.fedgcn_settings:FedGCNSettings",
        "fedavg",
        ("gcn-classifier", "gcn"),
    ),
    "gcfl": Method(
        "orchestrator.methods.gcfl:GCFL",
        "orchestrator.methods.gcfl_settings:GCFLSettings",
        "fedpub",
        personal=True,
    ),
    "fedsage": Method(
        "orchestrator.methods.fedavg:FedAvg", "orchestrator.methods.settings:FedAvgSettings", "fedavg", ("sage",)
    ),
    "fedsage+": Method(
        "orchestrator.methods.fedsage.plus:FedSagePlus",
        "orchestrator.methods.fedsage.settings:FedSagePlusSettings",
        "fedavg",
        ("sage",),
        unaccounted="clients exchange gradients without noise before the first round, and train on graphs that follow",
    ),
}

CENTRALISED = "centralised"
"""What methods are compared with besides each other: one client that holds the whole graph and trains alone."""


def load(reference: str) -> Any:
    """What a ``module:name`` names."""
    module, _, name = reference.partition(":")
    return getattr(import_module(module), name)
