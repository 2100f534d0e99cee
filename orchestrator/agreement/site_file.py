"""A site's own file, `site.yaml`."""

from __future__ import annotations

from pathlib import Path

from pydantic import Field, model_validator

from orchestrator.agreement.participant_file import ParticipantFile
from orchestrator.agreement.policy import SitePolicy
from orchestrator.config import DataConfig

__all__ = ["SiteFile"]


class SiteFile(ParticipantFile):
    """Where a site's data are, what it keeps, and what it takes part in. No coordinator has a say in any of it."""

    socket: Path = Field(Path("worker.sock"), description="at which the worker is asked; its owner's alone")
    folder: Path = Field(Path("state"), description="what the site keeps between rounds; its owner's alone")
    data: DataConfig = Field(description="the graph, as the section of that name in a run's settings")
    ledger: Path = Field(Path("data.ledger"), description="what all runs together spent on the data")
    ledger_limit: float | None = Field(
        None, gt=0, description="largest epsilon for an outsider that all runs together may reach; null: any"
    )
    policy: SitePolicy = Field(description="which runs the site takes part in")

    @model_validator(mode="after")
    def _data_are_one_sites(self) -> SiteFile:
        data = self.data
        if data.name == "own":
            raise ValueError("data.name = own: a site's graph is read from files; set it to files")
        if data.scaling == "pooled":
            raise ValueError("data.scaling = pooled: nobody sees all sites' features; set it to by_client")
        if data.files is not None and (data.files.client is not None or data.files.client_folders):
            raise ValueError("data.files: a site is one client; leave client and client_folders out")
        if data.name == "files" and data.dir is not None:
            raise ValueError("data.dir: paths of data.files are relative to this file; leave it out")
        return self
