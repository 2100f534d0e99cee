"""`safegnn ledger`."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from orchestrator.cli.options import Json
from orchestrator.cli.printing import print_json, print_rows, say
from orchestrator.errors import ConfigError, RunError

__all__ = ["ledger"]


def ledger(
    file: Annotated[Path, typer.Argument(help="The file that privacy.ledger named.")],
    delta: Annotated[float, typer.Option("--delta", help="Of (epsilon, delta), for all runs together.")] = 1e-5,
    as_json: Json = False,
) -> None:
    """Say what all runs together spent on the data that a ledger is of, by observer."""
    from orchestrator.client.ledger import read_ledger
    from orchestrator.experiments.tables import short
    from orchestrator.privacy.plan import VIEWS
    from orchestrator.privacy.together import composes, epsilon_together

    if not 0 < delta < 1:
        raise ConfigError(f"--delta {delta:g}: expected a number between 0 and 1")
    if not file.is_file():
        raise RunError(f"{file}: no such file; it is made when a run with privacy.ledger begins")
    entries = read_ledger(file)
    runs: list[dict[str, Any]] = [
        {
            "run": run,
            "data": entry.data,
            "adjacency": entry.budget.plan.adjacency,
            "rounds": entry.budget.last,
            "participations": len(entry.rounds),
            "epsilon": {view: epsilon_together([entry.spent], view, delta) for view in VIEWS},
        }
        for run, entry in entries.items()
    ]
    spent = [entry.spent for entry in entries.values()]
    together = {view: epsilon_together(spent, view, delta) for view in VIEWS}
    how = "composed" if composes(spent) else "basic"
    if as_json:
        for row in runs:
            row["epsilon"] = _plain(row["epsilon"])
        print_json({"delta": delta, "runs": runs, "epsilon": _plain(together), "composition": how})
        return
    rows = [
        {
            "run": row["run"][:8],
            "data": row["data"][:8],
            "rounds": f"{row['rounds']:,}",
            "with these data": f"{row['participations']:,}",
            **{f"epsilon, {view}": short(row["epsilon"][view]) for view in VIEWS},
        }
        for row in runs
    ]
    total = {"run": "all", "data": "", "rounds": "", "with these data": ""}
    print_rows([*rows, {**total, **{f"epsilon, {view}": short(together[view]) for view in VIEWS}}])
    said = "composed by one accountant" if how == "composed" else "of both adjacencies, for replace-one, added up"
    say(f"delta {delta:g} for each line; runs {said}; a server: for a client in every round that these data were in")


def _plain(epsilons: Mapping[Any, float]) -> dict[str, float | str]:
    return {view: "inf" if value == math.inf else value for view, value in epsilons.items()}
