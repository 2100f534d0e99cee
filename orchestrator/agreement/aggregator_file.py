"""An aggregator's own file, `aggregator.yaml`."""

from __future__ import annotations

from pydantic import Field

from orchestrator.agreement.participant_file import Address, ParticipantFile
from orchestrator.agreement.policy import Policy
from orchestrator.section import Section

__all__ = ["AggregatorFile", "Timeouts"]


class Timeouts(Section):
    """How long an aggregator waits before it gives a run up."""

    startup_sec: float = Field(120.0, gt=0, le=1e6, description="until all who belong to a run have met")
    silence_sec: float = Field(60.0, gt=0, le=1e6, description="longest silence of a peer within a phase of a round")
    idle_sec: float = Field(
        3600.0, gt=0, le=1e6, description="longest time between two orders of a run, in which sites train"
    )


class AggregatorFile(ParticipantFile):
    """Where an aggregator listens, what it asks of runs, and of how many at a time."""

    listen: Address = Field(description="host:port for the coordinator and the other aggregator, e.g. 0.0.0.0:7700")
    status: Address = Field(("127.0.0.1", 7780), description="host:port of health and metrics, for this host alone")
    policy: Policy = Field(description="what a run must keep to")
    most_runs: int = Field(4, ge=1, le=1000, description="runs at a time; one more is refused")
    timeouts: Timeouts = Timeouts()
