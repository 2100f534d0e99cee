"""`safegnn site`."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from orchestrator.cli.printing import tell

__all__ = ["site"]


def site(
    config: Annotated[Path, typer.Option("--config", help="The site's own file, site.yaml.")],
) -> None:
    """Take part as a site: hold its graph, and train when a run that its policy allows asks for it."""
    from orchestrator.agreement.site_file import SiteFile
    from orchestrator.site.worker import open_site, serve

    settings = SiteFile.read(config)
    with open_site(settings) as (worker, listener):
        tell(f"{worker.described}; asked at {settings.socket}")
        serve(listener, partial(worker.reply, say=tell))
