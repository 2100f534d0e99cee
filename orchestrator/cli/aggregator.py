"""`safegnn aggregator`: the service of an organisation that aggregates."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

__all__ = ["aggregator"]


def aggregator(
    config: Annotated[Path, typer.Option("--config", metavar="FILE", help="aggregator.yaml, as in the kit.")],
) -> None:
    """Serve as one of a consortium's two aggregators until SIGTERM: one port, several runs, a policy of one's own.

    Events go to standard error, a line of JSON each; health and metrics are at the address `status` of the file.
    """
    from importlib.metadata import version

    from orchestrator.aggregator.service import Service, run_until_signalled
    from orchestrator.agreement.aggregator_file import AggregatorFile

    file = AggregatorFile.read(config)
    own, roster, _ = file.participant()
    run_until_signalled(Service(file, own, roster, version=version("safegnn")))
