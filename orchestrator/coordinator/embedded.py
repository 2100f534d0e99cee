"""The embedded engine: two servers that compute by our own protocols."""

from __future__ import annotations

from typing import Any, Literal

from orchestrator.agreement.round_plan import RoundPlan
from orchestrator.coordinator.two_servers import TwoServerEngine

__all__ = ["EmbeddedEngine"]


class EmbeddedEngine(TwoServerEngine):
    """The servers compute by our own protocols, see `orchestrator.server.aggregation`."""

    def __init__(
        self,
        plan: RoundPlan,
        *,
        preprocessing: Literal["ot", "dealer"] = "ot",
        **options: Any,
    ) -> None:
        """
        Args:
            plan: of the rounds.
            preprocessing: "ot", by the two servers alone, or "dealer", by a third process.
            options: as `TwoServerEngine` takes them.
        """
        here = "orchestrator.server"
        modules = {"server 0": f"{here}.embedded", "server 1": f"{here}.embedded"}
        if preprocessing == "dealer":
            modules["dealer"] = f"{here}.dealer"
        settings = {"name": "embedded", "preprocessing": preprocessing}
        super().__init__(plan, modules, settings, **options)
