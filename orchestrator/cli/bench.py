"""`safegnn bench`."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from mpc_programs.programs import PROGRAMS
from orchestrator.cli.options import (
    MODEL_SIZE,
    DataDir,
    File,
    Json,
    Overrides,
    Parameters,
    Presets,
    Programs,
    choices,
    load,
    model_size,
)
from orchestrator.cli.printing import note, plain, print_json, print_rows, say, tell

__all__ = ["bench"]

_SUPPLIES = ("ot", "dealer")
_ENGINES = ("embedded", "mpspdz", "masking")


def bench(
    preset: Presets = None,
    config: File = None,
    set_: Overrides = None,
    data_dir: DataDir = None,
    engine: Annotated[
        str | None, typer.Option("--engine", help="embedded, mpspdz, masking (of FedAvg) or all: the first two.")
    ] = None,
    cohort: Annotated[int | None, typer.Option("--cohort", min=1, help="Clients in a round.")] = None,
    parameters: Parameters = None,
    repeats: Annotated[int, typer.Option("--repeats", min=1, help="Rounds to take medians over.")] = 20,
    program: Programs = None,
    preprocessing: Annotated[
        list[str] | None, typer.Option("--preprocessing", help="ot or dealer (mpspdz: semi2k, dealer-ring); repeats.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Measure one aggregation on made-up uploads, beside its floor in the same run.

    With a preset: every engine, protocol and program that can run here, beside the paper's figures, as a Markdown and
    a CSV table and a chart in a folder. Without: what --engine, --program and --preprocessing name.
    """
    whole = bool(preset or config)
    [on] = choices("--engine", [engine or ("all" if whole else "embedded")], (*_ENGINES, "all"))
    programs = choices("--program", program or (list(PROGRAMS) if whole else ["assisted"]), tuple(PROGRAMS))
    supplies = choices("--preprocessing", preprocessing or (list(_SUPPLIES) if whole else ["ot"]), _SUPPLIES)
    settings = load(preset, config, set_, data_dir)
    from orchestrator.experiments.costs import bench_all, contenders, with_cohort

    settings = with_cohort(settings, cohort) if cohort else settings
    records = bench_all(
        settings,
        contenders(on, programs, supplies),
        model_size(settings, parameters) if whole else parameters or MODEL_SIZE,
        repeats,
        required=("embedded",) if whole and engine not in ("mpspdz", "masking") else _ENGINES,
        announce=tell,
    )
    text = ""
    if whole:
        from orchestrator.coordinator.run_folder import RunFolder
        from orchestrator.experiments.cost_report import write_report

        title = f"One aggregation, {' + '.join(preset or [str(config)])}"
        folder = RunFolder.create(settings, f"bench-{settings.data.name}-{settings.method.name}")
        text = write_report(folder.path, records, settings.federation.rounds, title)
        note(f"table and chart: {folder.path}")
    documents = [record.as_dict() for record in records]
    if as_json:
        print_json(documents)
    elif whole:
        say(text)
    else:
        _print(documents)


def _print(documents: list[dict[str, Any]]) -> None:
    """A column a contender, a row a figure."""
    names = [f"{each['program']}, {each['protocol'] or each['preprocessing']}" for each in documents]
    figures = [key for key in documents[0] if key not in ("program", "preprocessing", "protocol")]
    print_rows(
        [
            {"": key.replace("_", " "), **dict(zip(names, (plain(each[key]) for each in documents), strict=True))}
            for key in figures
        ]
    )
