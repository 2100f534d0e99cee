"""The command line: parse, call, print. Figures go to standard output, everything else to standard error."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any, cast

import click
import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table
from rich.text import Text

from mpc_programs.rules import PROGRAMS
from orchestrator.config import Config, load_config, preset_names
from orchestrator.errors import ConfigError, DataError, SafeGNNError
from orchestrator.mpspdz.installation import PARTIES
from orchestrator.registry import METHODS

__all__ = ["main"]

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,  # they would print local variables, and those hold secrets
    help="Fair and private federated graph neural networks.",
)
data_app = typer.Typer(no_args_is_help=True, help="Data sets: fetch the raw files, describe a graph and its clients.")
app.add_typer(data_app, name="data")

MODEL_SIZE = 22_000  # of the paper's largest model

_log = Console(stderr=True, highlight=False, markup=False, emoji=False)
_out = Console(highlight=False, markup=False, emoji=False)

Presets = Annotated[
    list[str] | None,
    typer.Option("--preset", help=f"Shipped settings, may be repeated, later ones win: {', '.join(preset_names())}."),
]
File = Annotated[Path | None, typer.Option("--config", help="YAML file with any part of the settings.")]
Overrides = Annotated[list[str] | None, typer.Option("--set", help="One setting, e.g. federation.rounds=50; repeats.")]
DataDir = Annotated[Path | None, typer.Option("--data-dir", help="Folder with the raw files of the data set.")]
EngineName = Annotated[
    str | None, typer.Option("--engine", help="embedded or mpspdz (both on secret shares), or plaintext.")
]
Protocol = Annotated[str | None, typer.Option("--protocol", help=f"Of mpspdz: {', '.join(PARTIES)}.")]
Program = Annotated[str | None, typer.Option("--program", help=f"{', '.join(PROGRAMS)}.")]
Programs = Annotated[list[str] | None, typer.Option("--program", help=f"{', '.join(PROGRAMS)}; repeats.")]
Parameters = Annotated[
    int | None,
    typer.Option("--parameters", min=1, help=f"Size of the model; default: the data set's, else {MODEL_SIZE:,}."),
]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON document on standard output.")]


@app.command()
def train(
    preset: Presets = None,
    config: File = None,
    set_: Overrides = None,
    data_dir: DataDir = None,
    engine: EngineName = None,
    protocol: Protocol = None,
    program: Program = None,
    resume: Annotated[Path | None, typer.Option("--resume", help="Run folder to continue, with its settings.")] = None,
    audit: Annotated[
        bool, typer.Option("--audit", help="Check every aggregation against float64; simulation only.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Train one federated model and leave a run folder with metrics, costs, plots and the model."""
    from orchestrator.coordinator.run_folder import RunFolder

    if resume is None:
        folder, settings = None, _settings(preset, config, set_, data_dir, engine, protocol, program)
    elif preset or config or set_ or data_dir or engine or protocol or program:
        raise ConfigError("--resume continues with the run's own settings; leave the other options out")
    else:
        folder, settings = RunFolder.open(resume)
    from orchestrator.coordinator.client_pool import warm_up

    warm_up()
    from orchestrator.coordinator.factory import create_engine
    from orchestrator.coordinator.training import train as run
    from orchestrator.graphs import client_graphs, load_graph
    from orchestrator.reports.run import privacy_report, report
    from orchestrator.reports.similarity import draw_similarity

    # Settings and data at fault leave no folder behind.
    aggregation, graph = create_engine(settings), load_graph(settings.data, settings.seed)
    client_graphs(graph, settings.clients, settings.seed)
    folder = folder or RunFolder.create(settings)
    with (
        _interruptible(f"the last checkpoint stands, `safegnn train --resume {folder.path}` continues"),
        _progress(settings.federation.rounds) as advance,
    ):
        run(
            settings,
            folder,
            resume=resume is not None,
            audit=audit,
            observe=lambda result: advance("", result),
            announce=lambda text: print(text, file=sys.stderr, flush=True),
            graph=graph,
            engine=aggregation,
        )
    summary = report(folder, f"{settings.data.name}, {settings.method.name}, {settings.engine.name} engine")
    summary["privacy"] = privacy_report(folder, settings)
    draw_similarity(folder, graph, settings)
    if as_json:
        _print_json(summary)
        return
    table = Table("after the last round", "validation", "mean of 20 rounds", "test")
    for metric in summary["test"]:
        table.add_row(metric, *(_number(group[metric]) for group in (summary, summary["ma20"], summary["test"])))
    _out.print(table)
    for mask, reasons in summary["undefined"].items():
        for metric, reason in reasons.items():
            _out.print(f"{mask} {metric} is undefined: {reason}")
    costs = summary["costs"]
    _out.print(
        f"per round (median): local training {costs['training_seconds']:.3f} s, aggregation online "
        f"{costs['online_seconds']:.3f} s, {costs['online_bytes_server0'] / 1000:.1f} kB between the servers each way, "
        f"upload {costs['upload_bytes_per_client'] / 1000:.0f} kB per client"
    )
    if (privacy := summary["privacy"]) is None:
        if settings.privacy.noise_multiplier > 0:
            _out.print("no epsilon is stated: none is proven for these settings, or none was asked for")
    else:
        whose = "simulated, of a run on shares; privacy" if privacy["simulated"] else "privacy"
        _out.print(
            f"{whose} of a client's whole data: epsilon {privacy['epsilon']:.4g} at delta {privacy['delta']:g} "
            f"({privacy['adjacency']}, accountant {privacy['accountant']}) to whoever sees the released models; to "
            f"another client {privacy['views']['client']:.4g}; to a server, which knows the cohorts, at most "
            f"{privacy['views']['server']:.4g}",
            soft_wrap=True,
        )
        if privacy["stopped"]:
            _out.print(f"stopped early: {privacy['stopped']}", soft_wrap=True)
    _out.print(f"run folder: {folder.path}", soft_wrap=True)


@app.command()
def compare(
    preset: Presets = None,
    config: File = None,
    set_: Overrides = None,
    data_dir: DataDir = None,
    engines: Annotated[
        str | None,
        typer.Option("--engines", help="Which; default plaintext,embedded, and plaintext alone with --methods."),
    ] = None,
    methods: Annotated[
        str | None,
        typer.Option("--methods", help=f"Compare these instead, of {', '.join(METHODS)} and centralised."),
    ] = None,
    seeds: Annotated[
        int | None, typer.Option("--seeds", min=1, help="With --methods: runs of each; default 1.")
    ] = None,
    protocol: Protocol = None,
    program: Program = None,
    as_json: Json = False,
) -> None:
    """Train in plaintext and on secret shares from the same seeds; overlay the curves. Or compare methods."""
    names = [name.strip() for name in (engines or ("plaintext" if methods else "plaintext,embedded")).split(",")]
    chosen = _choices("--engines", names, ("plaintext", "embedded", "mpspdz"))
    if methods and len(chosen) > 1:
        raise ConfigError(f"--engines {','.join(chosen)}: with --methods expected one")
    if seeds is not None and not methods:
        raise ConfigError("--seeds: engines are compared on one seed; give --methods")
    settings = _settings(preset, config, set_, data_dir, chosen[0] if methods else None, protocol, program)
    from orchestrator.coordinator.client_pool import warm_up

    warm_up()
    if methods:
        _compare_methods(settings, [name.strip() for name in methods.split(",")], seeds or 1, as_json)
        return
    from orchestrator.experiments.comparison import compare as run

    with _progress(len(chosen) * settings.federation.rounds) as advance:
        result = run(settings, chosen, observe=advance)
    if as_json:
        _print_json(result.as_dict())
        return
    names = list(result.final)
    table = Table("validation", *(f"final, {name}" for name in names), "final difference", "largest difference")
    for metric, largest in result.largest.items():
        values = [result.final[name][metric] for name in names]
        defined = [value for value in values if value is not None]
        final = max(defined) - min(defined) if len(defined) == len(values) else None
        table.add_row(metric, *map(_number, values), _number(final), _number(largest))
    _out.print(table)
    if result.max_model_difference is None:
        _out.print("largest model difference: not computed, because the servers add noise that nobody else knows")
    else:
        _out.print(
            f"largest difference of a released model from float64 aggregation of the same uploads: "
            f"{result.max_model_difference:.3g}, at most {result.worst_share_of_bound:.2f} of the fixed-point bound"
        )
    _out.print(f"curves: {result.folder / 'comparison.png'}", soft_wrap=True)


def _compare_methods(settings: Config, methods: list[str], seeds: int, as_json: bool) -> None:
    from orchestrator.experiments.methods import compare_methods, markdown

    with _progress(len(methods) * seeds * settings.federation.rounds) as advance:
        result = compare_methods(settings, methods, seeds, observe=advance)
    if as_json:
        _print_json(result.as_dict())
        return
    _out.print(markdown(result), soft_wrap=True)
    _out.print(
        f"test nodes, mean ± standard deviation over {seeds} seeds; runs, curves: {result.folder}", soft_wrap=True
    )


@app.command()
def account(
    sampler: Annotated[str, typer.Option("--sampler", help="fixed (cohorts of exactly q, replace-one) or poisson.")],
    clients: Annotated[int, typer.Option("--clients", help="n, the number of clients.")],
    cohort: Annotated[int, typer.Option("--cohort", help="q, clients in a round; with poisson the mean.")],
    rounds: Annotated[int, typer.Option("--rounds", min=1, max=10**9, help="T, the number of rounds.")],
    noise_multiplier: Annotated[
        float | None, typer.Option("--noise-multiplier", help="sigma, relative to the L2 sensitivity.")
    ] = None,
    target_epsilon: Annotated[
        float | None, typer.Option("--target-epsilon", help="Find the least sigma that keeps this epsilon.")
    ] = None,
    delta: Annotated[float, typer.Option("--delta")] = 1e-5,
    accountant: Annotated[str, typer.Option("--accountant", help="rdp, pld (poisson only) or paper.")] = "rdp",
    noise: Annotated[str, typer.Option("--noise", help="each_full or split between the servers.")] = "each_full",
    as_json: Json = False,
) -> None:
    """Say what noise is worth: from sigma to epsilon, or from a target epsilon to sigma.

    Epsilon is for a client's whole data, as an outsider sees the released models; beside it stand the views of another
    client and of a server, which knows who takes part.
    """
    from orchestrator.privacy.plan import VIEWS, PrivacyPlan
    from orchestrator.privacy.statement import account as document
    from orchestrator.privacy.statement import calibrate, table

    if (noise_multiplier is None) == (target_epsilon is None):
        raise ConfigError("give one of --noise-multiplier and --target-epsilon")
    sigma = 1.0 if noise_multiplier is None else noise_multiplier
    # these are any text: the plan refuses names that it does not know
    plan = PrivacyPlan(cast(Any, sampler), clients, cohort, sigma, delta, accountant, cast(Any, noise))
    if target_epsilon is not None:
        plan = calibrate(plan, rounds, target_epsilon)
    facts = document(plan, rounds)
    if as_json:
        _print_json(facts)
        return
    columns = Table("rounds", *(f"epsilon, {view}" for view in VIEWS), title=None)
    for done, row in table(plan, rounds):
        columns.add_row(f"{done:,}", *("-" if value is None else f"{value:.4g}" for value in row.values()))
    _out.print(columns)
    _out.print(
        f"noise multiplier {plan.noise_multiplier:g}, {noise}; delta {plan.delta:g}, {plan.adjacency}; accountant "
        f"{plan.accountant}, conversion: {facts['conversion']}; server: for a client in every round",
        soft_wrap=True,
    )
    if "warning" in facts:
        _out.print(f"warning: {facts['warning']}", soft_wrap=True)


@app.command()
def reproduce(
    experiment: Annotated[str, typer.Argument(help="table2 (with figures 4 and 5) or operating-point.")],
    preset: Presets = None,
    config: File = None,
    set_: Overrides = None,
    data_dir: DataDir = None,
    engine: Annotated[str, typer.Option("--engine", help="plaintext, faster, or embedded.")] = "plaintext",
    seeds: Annotated[int, typer.Option("--seeds", min=1, help="Runs of every setting.")] = 5,
    as_json: Json = False,
) -> None:
    """Train several privacy settings with several seeds; leave a table, curves and every run's folder.

    Where Pokec's files are missing, the synthetic stand-in of the same size takes its place.
    """
    from orchestrator.coordinator.client_pool import warm_up
    from orchestrator.graphs import load_graph

    settings = _settings(
        preset or ["dp-large" if experiment == "operating-point" else "pokec-n"], config, set_, data_dir, engine
    )
    try:
        load_graph(settings.data, settings.seed)
    except DataError as error:
        if preset is not None and not all(name.startswith("pokec-") for name in preset):
            raise
        _log.print(f"{error}; the synthetic stand-in takes its place", soft_wrap=True)
        settings = _settings([f"synthetic-{settings.data.name}"], config, set_, None, engine)
    warm_up()
    from orchestrator.experiments.reproduction import markdown, settings_of
    from orchestrator.experiments.reproduction import reproduce as run

    compared = settings_of(experiment, settings)
    with _progress(len(compared) * seeds * settings.federation.rounds) as advance:
        result = run(experiment, settings, compared, seeds, observe=advance)
    if as_json:
        _print_json(result.as_dict())
        return
    _out.print(markdown(result), soft_wrap=True)
    simulated = ", of the run on shares that plaintext simulates" if engine == "plaintext" else ""
    _out.print(f"epsilon at delta {result.delta:g}{simulated}; table and curves: {result.folder}", soft_wrap=True)


@app.command()
def certs(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="Folder to make; it must not exist.")],
    days: Annotated[int, typer.Option("--days", min=1, max=3650, help="Lifetime of the certificates.")] = 365,
) -> None:
    """Make the keys and certificates by which servers, dealer and orchestrator know each other.

    Without them, train and compare make certificates that live for one session. Make some to keep with this command
    and name the folder in engine.certificates. A private CA signs one certificate for each role, and its key is
    forgotten: nobody can add a role later, and to renew means to make a whole new folder.
    """
    from orchestrator.transport.tls import ROLES, create_certificates, files

    end = create_certificates(folder, days)
    _out.print(f"certificates in {folder}, valid until {end:%Y-%m-%d}; keep keys secret:", soft_wrap=True)
    for role in ROLES:
        _out.print(f"  copy to the machine of {role}: {', '.join(files(role))}", soft_wrap=True)
    _out.print(f"all roles on this machine: copy nothing, train with engine.certificates={folder}", soft_wrap=True)


@app.command()
def bench(
    preset: Presets = None,
    config: File = None,
    set_: Overrides = None,
    data_dir: DataDir = None,
    engine: Annotated[str | None, typer.Option("--engine", help="embedded, mpspdz or all.")] = None,
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
    from orchestrator.experiments.costs import bench as measure
    from orchestrator.experiments.costs import contenders

    whole = bool(preset or config)
    settings = _settings(preset, config, set_, data_dir, None)
    if cohort:
        count = max(cohort, settings.clients.count)
        settings = settings.changed(clients={"count": count}, federation={"cohort": cohort})
    length = _model_size(settings, parameters) if whole else parameters or MODEL_SIZE
    [name] = _choices("--engine", [engine or ("all" if whole else "embedded")], ("embedded", "mpspdz", "all"))
    programs = _choices("--program", program or (list(PROGRAMS) if whole else ["assisted"]), PROGRAMS)
    hows = ("ot", "dealer")
    supply = _choices("--preprocessing", preprocessing or (list(hows) if whole else ["ot"]), hows)
    records = []
    for contender in contenders(name, programs, supply):
        print(f"{contender}: {repeats} rounds", file=sys.stderr)
        try:
            records.append(measure(settings, contender, length, repeats))
        except ConfigError as error:
            if contender.engine == "embedded" or not whole or engine == "mpspdz":
                raise
            print(f"{contender}: left out: {error}", file=sys.stderr)
    if whole:
        from orchestrator.coordinator.run_folder import RunFolder
        from orchestrator.experiments.cost_report import write_report

        title = f"One aggregation, {' + '.join(preset or [str(config)])}"
        folder = RunFolder.create(settings, f"bench-{settings.data.name}-{settings.method.name}")
        text = write_report(folder.path, records, settings.federation.rounds, title)
        _log.print(f"table and chart: {folder.path}", soft_wrap=True)
        if not as_json:
            print(text)
            return
    if as_json:
        print(json.dumps([record.as_dict() for record in records], indent=2, allow_nan=False))
        return
    documents = [record.as_dict() for record in records]
    table = Table("", *(f"{record.program}, {record.protocol or record.preprocessing}" for record in records))
    for key in documents[0]:
        if key not in ("program", "preprocessing", "protocol"):
            table.add_row(key.replace("_", " "), *(_plain(document[key]) for document in documents))
    _out.print(table)


@app.command()
def mpc(
    preset: Presets = None,
    config: File = None,
    set_: Overrides = None,
    data_dir: DataDir = None,
    parameters: Parameters = None,
    protocol: Annotated[list[str] | None, typer.Option("--protocol", help=f"{', '.join(PARTIES)}; repeats.")] = None,
    program: Programs = None,
) -> None:
    """Compile the programs of a round for MP-SPDZ, for every protocol and program, and say where the bytecode is.

    Training and bench compile what they need themselves; this does it ahead, and checks the installation.
    """
    from orchestrator.coordinator.round_plan import RoundPlan
    from orchestrator.mpspdz.compiler import compile_program
    from orchestrator.mpspdz.installation import TESTED_VERSIONS, find
    from orchestrator.mpspdz.shape import Shape

    settings = _settings(preset, config, set_, data_dir, None)
    protocols = _choices("--protocol", protocol or list(PARTIES), tuple(PARTIES))
    programs = _choices("--program", program or list(PROGRAMS), PROGRAMS)
    installation = find(settings.engine.mpspdz_home)
    for each in protocols:
        installation.binary(each)
        installation.check_certificates(each)
    tested = "" if installation.version in TESTED_VERSIONS else f" (tested: {', '.join(TESTED_VERSIONS)})"
    _out.print(f"MP-SPDZ {installation.version}{tested} in {installation.home}", soft_wrap=True)
    length = _model_size(settings, parameters)
    for name in programs:
        for each in protocols:
            try:
                shape = Shape(name, each, RoundPlan.of(settings).rule, length)
            except ConfigError as error:
                if program:
                    raise
                print(f"{name}, {each}: left out: {error}", file=sys.stderr)
                continue
            compiled = compile_program(installation, shape)
            _out.print(f"{name}, {each}: {compiled.folder / 'Programs'}", soft_wrap=True)


@app.command()
def doctor(config: File = None, set_: Overrides = None, as_json: Json = False) -> None:
    """Is everything there that training on MP-SPDZ needs? A row for each thing, and the cure beside what is missing."""
    from orchestrator.mpspdz.doctor import examine

    findings = examine(_settings(None, config, set_, None, None).engine.mpspdz_home)
    sound = all(row.state != "fault" for row in findings)
    if as_json:
        _print_json({"ok": sound, "findings": [asdict(row) for row in findings]})
    else:
        table = Table("", "", "found", "what to do")
        colours = {"ok": "green", "warning": "yellow", "fault": "red"}
        for row in findings:
            table.add_row(row.what, Text(row.state, style=colours[row.state]), row.detail, row.cure)
        _out.print(table)
    if not sound:
        raise typer.Exit(1)


def _model_size(settings: Config, given: int | None) -> int:
    """d as given, else of the data set, else `MODEL_SIZE` where the data set is not there."""
    if given is not None:
        return given
    from orchestrator.coordinator.training import model_size

    try:
        return model_size(settings)
    except DataError as error:
        _log.print(f"{MODEL_SIZE:,} parameters, because the data set is not there ({error})", soft_wrap=True)
        return MODEL_SIZE


def _choices(option: str, values: list[str], allowed: tuple[str, ...]) -> list[str]:
    for value in values:
        if value not in allowed:
            raise ConfigError(f"{option} {value}: expected one of {', '.join(allowed)}")
    return values


@data_app.command("fetch")
def data_fetch(
    name: Annotated[str, typer.Argument(help="nba, german, pokec-z, pokec-n, cora or citeseer")],
    data_dir: Annotated[Path | None, typer.Option("--data-dir", help="Where to put the files.")] = None,
) -> None:
    """Download a public data set, pinned to a commit and checked."""
    from orchestrator.graphs import fetch_data

    _out.print(str(fetch_data(name, data_dir)), soft_wrap=True)


@data_app.command("info")
def data_info(
    name: Annotated[str | None, typer.Argument(help=f"a preset: {', '.join(preset_names())}")] = None,
    config: File = None,
    set_: Overrides = None,
    data_dir: DataDir = None,
    as_json: Json = False,
) -> None:
    """Describe a graph and the clients that are cut from it."""
    from orchestrator.graphs import client_graphs, describe_graph, load_graph

    settings = _settings([name] if name else None, config, set_, data_dir, None)
    graph = load_graph(settings.data, settings.seed)
    clients = client_graphs(graph, settings.clients, settings.seed)
    facts = describe_graph(graph, clients, settings.clients.balance_self_loops)
    if as_json:
        _print_json(facts)
        return
    table = Table("", "", show_header=False)
    for key, value in _flatten(facts):
        table.add_row(key, value)
    _out.print(table)


def main() -> None:
    """Entry point: every expected failure is one line on standard error and a non-zero exit status."""
    try:
        status = app(standalone_mode=False)
    except SafeGNNError as error:
        _fail(str(error), error.exit_status)
    except click.ClickException as error:
        if not error.format_message():  # a bare command has printed its help already
            sys.exit(error.exit_code)
        _fail(error.format_message(), 2)
    except (KeyboardInterrupt, click.Abort):
        _fail("interrupted", 130)
    if status == 130:  # what typer makes of Ctrl-C
        _fail("interrupted", 130)
    sys.exit(status if isinstance(status, int) else 0)


def _fail(line: str, status: int) -> None:
    print(f"safegnn: {' '.join(line.split())}", file=sys.stderr)
    sys.exit(status)


class _Interrupted(SafeGNNError):
    """Ctrl-C, with what can be done next."""

    exit_status = 130


@contextmanager
def _interruptible(advice: str) -> Iterator[None]:
    try:
        yield
    except KeyboardInterrupt:
        raise _Interrupted(f"interrupted; {advice}") from None


def _settings(
    presets: list[str] | None,
    file: Path | None,
    overrides: list[str] | None,
    data_dir: Path | None,
    engine: str | None,
    protocol: str | None = None,
    program: str | None = None,
) -> Config:
    extra = [f"data.dir={json.dumps(str(data_dir), ensure_ascii=False)}"] if data_dir else []
    chosen = {"name": engine, "protocol": protocol, "program": program}
    extra += [f"engine.{key}={json.dumps(value)}" for key, value in chosen.items() if value]
    return load_config(presets or (), file, [*(overrides or ()), *extra])


@contextmanager
def _progress(total: int) -> Iterator[Callable[[str, Any], None]]:
    """A bar on a terminal, else a line now and then; both say what the last round gave and cost."""
    last_round = TextColumn("{task.description}", markup=False)
    columns = (BarColumn(), MofNCompleteColumn(), TextColumn("left"), TimeRemainingColumn(), last_round)
    with Progress(*columns, console=_log, disable=not _log.is_terminal) as bar:
        task, done = bar.add_task("starting", total=total), 0

        def advance(engine: str, result: Any) -> None:
            nonlocal done
            done = done + 1 if done else result.round  # a resumed run does not begin with round 1
            values, cost = result.evaluations["val"].as_dict(), result.cost
            name, label = ("auc", "AUC") if "auc" in values else ("accuracy", "accuracy")
            text = f"val {label} {_number(values[name])}  online {cost.online_seconds:.3f} s  "
            text += f"{sum(cost.online_bytes) / 1000:.1f} kB"
            text = f"{engine}  {text}" if engine else text
            bar.update(task, completed=done, description=text)
            if not _log.is_terminal and (done % max(1, total // 10) == 0 or done == result.round == 1):
                print(f"round {done}/{total}  {text}", file=sys.stderr, flush=True)

        yield advance


def _number(value: float | None) -> str:
    return "undefined" if value is None else f"{value:.4f}"


def _flatten(tree: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, str]]:
    for key, value in tree.items():
        if isinstance(value, Mapping):
            yield from _flatten(value, f"{prefix}{key} ")
        elif isinstance(value, list | tuple):
            yield f"{prefix}{key}", ", ".join(_plain(item) for item in value)
        else:
            yield f"{prefix}{key}", _plain(value)


def _plain(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def _print_json(document: Mapping[str, Any]) -> None:
    print(json.dumps(document, indent=2, allow_nan=False))


if __name__ == "__main__":
    main()
