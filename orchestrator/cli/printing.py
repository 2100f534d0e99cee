"""Figures go to standard output, everything else to standard error."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from rich.console import Console, RenderableType
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table

__all__ = ["flatten", "note", "plain", "print_json", "print_rows", "progress", "say", "tell"]


def _console(stderr: bool = False) -> Console:
    """As wide as the terminal is now."""
    return Console(stderr=stderr, highlight=False, markup=False, emoji=False)


def say(what: RenderableType) -> None:
    """On standard output; text is not wrapped."""
    _console().print(what, soft_wrap=isinstance(what, str))


def note(text: str) -> None:
    """On standard error."""
    _console(stderr=True).print(text, soft_wrap=True)


def tell(text: str) -> None:
    """On standard error at once, for whoever follows a long command."""
    print(text, file=sys.stderr, flush=True)


def print_json(document: Mapping[str, Any] | Sequence[Any]) -> None:
    """One document on standard output."""
    print(json.dumps(document, indent=2, allow_nan=False))


def print_rows(rows: Sequence[Mapping[str, str | None]]) -> None:
    """A table whose columns are the keys of its rows; "–" stands where a row has None."""
    table = Table(*rows[0])
    for row in rows:
        table.add_row(*("–" if cell is None else cell for cell in row.values()))
    say(table)


@contextmanager
def progress(total: int, before: int | None = None) -> Iterator[Callable[[str, Any], None]]:
    """A bar on a terminal, else a line now and then; both say what the last round gave and cost.

    Args:
        before: rounds that were completed before; None: as many as the first result says, which is of one run.
    """
    from orchestrator.experiments.tables import metric

    last_round = TextColumn("{task.description}", markup=False)
    columns = (BarColumn(), MofNCompleteColumn(), TextColumn("left"), TimeRemainingColumn(), last_round)
    log = _console(stderr=True)
    with Progress(*columns, console=log, disable=not log.is_terminal) as bar:
        task, done = bar.add_task("starting", total=total), before

        def advance(run: str, result: Any) -> None:
            nonlocal done
            done = result.round if done is None else done + 1  # a resumed run does not begin with round 1
            values, cost = result.evaluations["val"].as_dict(), result.cost
            name, label = ("accuracy", "accuracy") if "macro_f1" in values else ("auc", "AUC")
            measured = f"val {label} {metric(values[name])}  " if name in values else ""  # nothing may be measured
            text = f"{measured}online {cost.online_seconds:.3f} s  "
            text += f"{sum(cost.online_bytes) / 1000:.1f} kB"
            text = f"{run}  {text}" if run else text
            bar.update(task, completed=done, description=text)
            if not log.is_terminal and (done % max(1, total // 10) == 0 or done == result.round == 1):
                tell(f"round {done}/{total}  {text}")

        yield advance


def flatten(tree: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, str]]:
    """The leaves of a document, named by the way to them."""
    for key, value in tree.items():
        if isinstance(value, Mapping):
            yield from flatten(value, f"{prefix}{key} ")
        elif isinstance(value, list | tuple):
            yield f"{prefix}{key}", ", ".join(plain(item) for item in value)
        else:
            yield f"{prefix}{key}", plain(value)


def plain(value: Any) -> str:
    """A value of a document as a cell."""
    return f"{value:.4g}" if isinstance(value, float) else str(value)
