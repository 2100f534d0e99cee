"""`site.yaml`: who a site is, where its data are, and what it takes part in.

```
identity: identity              # the folder that `safegnn identity new` made
consortium: consortium.yaml
folder: state                   # what the site keeps: socket, seed, ledger, training states
data: {name: files, files: {nodes: nodes.csv, edges: edges.csv, label: readmitted, positive: "yes"}}
policy: {noise_multiplier: 1, largest_epsilon: 4, min_cohort: 3}
ledger_limit: 8
```
Paths are relative to the file.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pydantic import Field, ValidationError, model_validator

from orchestrator.agreement.policy import SitePolicy
from orchestrator.config import DataConfig
from orchestrator.errors import ConfigError
from orchestrator.section import Section, closest, in_one_line
from orchestrator.yaml_text import parse

__all__ = ["SiteConfig", "read_site"]


class SiteConfig(Section):
    """What a site's owner says. Its graph follows from `data` alone; no coordinator has a say in it."""

    identity: Path = Field(description="folder of the site's key and certificate")
    consortium: Path = Field(description="the roster")
    folder: Path = Field(description="what the site keeps, its owner's alone")
    data: DataConfig = Field(description="the graph, as the section of that name in a run's settings")
    policy: SitePolicy = Field(description="which runs the site takes part in")
    ledger_limit: float | None = Field(
        None, gt=0, description="largest epsilon for an outsider that all runs together may reach; null: no limit"
    )

    @model_validator(mode="after")
    def _data_are_one_sites(self) -> SiteConfig:
        data = self.data
        if data.name == "own":
            raise ValueError("data.name = own: a site's graph is read; set it to files")
        if data.scaling == "pooled":
            raise ValueError("data.scaling = pooled: nobody sees all sites' features; set it to by_client")
        if data.files is not None and (data.files.client is not None or data.files.client_folders):
            raise ValueError("data.files: a site is one client; leave client and client_folders out")
        return self


def read_site(path: Path) -> SiteConfig:
    """The file, with paths that mean the same from any directory. Raises ConfigError in one line."""
    try:
        tree = parse(path.read_text(encoding="utf-8-sig"), str(path))
    except (OSError, ValueError) as error:
        raise ConfigError(f"{path}: cannot be read: {getattr(error, 'strerror', None) or 'it is no text'}") from None
    if not isinstance(tree, Mapping):
        raise ConfigError(f"{path}: expected a site's settings: identity, consortium, folder and data")
    try:
        site = SiteConfig.model_validate(tree)
    except ValidationError as error:
        raise ConfigError(f"{path}: {in_one_line(error, _unknown)}") from None
    home = path.absolute().parent
    own = {name: home / getattr(site, name) for name in ("identity", "consortium", "folder")}
    reads = site.data.dir is not None or site.data.name == "files"
    return site.model_copy(
        update={**own, "data": site.data.model_copy(update={"dir": home / (site.data.dir or "")} if reads else {})}
    )


def _unknown(path: Any) -> str:
    """What to say of a setting that its section does not know."""
    section: type[Section] = SiteConfig
    for name in map(str, path[:-1]):
        section = section.inner().get(name, section)
    return f"unknown setting{closest(str(path[-1]), section)}"
