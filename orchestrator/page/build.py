"""Makes the page: what is said at its head, its warnings, and its parts, laid out by the templates beside this file.

Names and paths in a run folder are its user's, or of files that others sent: all text is escaped (`autoescape`).
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from importlib import resources
from pathlib import Path

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from orchestrator.agreement.round_plan import HIDING_COHORT
from orchestrator.evaluation.group_table import GAPS
from orchestrator.experiments.plan import GridPlan
from orchestrator.files import write_atomically
from orchestrator.page.arms import Arms, read_runs
from orchestrator.page.costs import clients_part, costs_part
from orchestrator.page.origin import Origin, origin, settings
from orchestrator.page.promise import privacy_part, refusals, seen_part
from orchestrator.page.record import Record
from orchestrator.page.results import results_part
from orchestrator.page.svg import DARK, LIGHT, Charts
from orchestrator.page.verdicts import NAMES, Verdict, compared, learned, one_class, privacy

__all__ = ["report", "write_report"]

_FEW = 30
"""Nodes of a group below which a gap is mostly chance."""


def write_report(paths: Sequence[Path], output: Path, *, exact_metrics: bool = False) -> None:
    """Write the report of some runs, and of the runs in folders of comparisons.

    Args:
        exact_metrics: also show metrics that stand beside noise and no epsilon covers; marked as that.

    Raises:
        RunError: there is no run, or the file cannot be written.
        ConfigError: a run's settings cannot be read.
    """
    text = report(paths, exact_metrics)
    write_atomically(output, lambda file: file.write(text.encode()) and None)


def report(paths: Sequence[Path], exact_metrics: bool = False) -> str:
    """The page. Raises as `write_report`."""
    runs, missing = read_runs(paths, exact_metrics)
    arms, charts = Arms.of(runs), Charts()
    first = arms.first(arms.baseline) if arms.several else arms.records[0]
    made = origin(first.config, first.path)
    folder = resources.files("orchestrator.page") / "templates"
    environment = Environment(
        loader=PackageLoader("orchestrator.page"), autoescape=True, undefined=StrictUndefined, trim_blocks=True,
        lstrip_blocks=True,
    )  # fmt: skip
    return environment.get_template("report.html").render(
        style=Markup((folder / "style.css").read_text(encoding="utf-8")),  # our own file, and no user's text
        palette=list(zip(LIGHT, DARK, strict=True)),
        title=_title(arms),
        sentence=_sentence(arms),
        verdicts=_verdicts(arms),
        arms=arms,
        first=first,
        origin=made,
        reproduce=_reproduce(arms, made, paths),
        results=results_part(arms, charts),
        withheld=list(dict.fromkeys(line for record in arms.records for line in record.withheld)),
        hidden=any(record.hides_metrics for record in arms.records),
        exact=any(record.exact for record in arms.records),
        privacy=privacy_part(arms, charts),
        seen=seen_part(arms),
        refusals=refusals(arms),
        costs=costs_part(arms, charts),
        clients=clients_part(arms, charts),
        settings=settings(first.config),
        warnings=_warnings(arms, missing),
        notable=len(made.changed) <= 40,
        made=f"{datetime.now():%Y-%m-%d %H:%M}",
    )


def _title(arms: Arms) -> str:
    config = arms.records[0].config
    return (
        f"{', '.join(arms.runs)} on {config.data.name}"
        if arms.several
        else f"{config.method.name} on {config.data.name}"
    )


def _sentence(arms: Arms) -> str:
    """What was run, in plain words."""
    config, records = arms.records[0].config, arms.records
    federation = config.federation
    where = {
        "embedded": "two servers added the clients' updates up on secret shares",
        "mpspdz": "two servers added the clients' updates up on secret shares (MP-SPDZ)",
        "masking": "one server added up masked updates, in a simulation",
        "plaintext": "updates were added up in plaintext, in a simulation that protects nobody",
    }[config.engine.name]
    noise = "with noise for differential privacy" if records[0].private else "without differential privacy"
    rounds = max(record.completed for record in records)
    if len({record.config.engine.name for record in records}) > 1:
        where = "updates were added up by several engines"
    if len({record.private for record in records}) > 1:
        noise = "some with noise for differential privacy and some without"
    what = f"{config.clients.count} clients of the graph {config.data.name}, {federation.cohort} a round"
    if federation.sampling == "poisson":
        what = what.replace(f"{federation.cohort} a round", f"about {federation.cohort} a round")
    if not arms.several:
        return (
            f"One graph network was trained by {config.method.name} for {rounds} of {federation.rounds} rounds with "
            f"{what}; {where}, {noise}."
        )
    seeds = sorted({seed for own in arms.runs.values() for seed in own})
    listed = f"seed {seeds[0]}" if len(seeds) == 1 else f"{len(seeds)} seeds"
    plural = "s" if len(arms.runs) > 1 else ""
    number = {2: "Two", 3: "Three", 4: "Four", 5: "Five"}.get(len(arms.runs), str(len(arms.runs)))
    return (
        f"{number} way{plural} of training ({', '.join(arms.runs)}) were run for up to {rounds} rounds with "
        f"{listed} each, with {what}; {where}, {noise}."
    )


def _verdicts(arms: Arms) -> list[Verdict]:
    said: list[Verdict] = []
    for arm in arms.runs:
        found = [learned(record) for record in arms.runs[arm].values()]
        kinds = [own.kind for own in found]
        worst = next((own for own in found if own.kind == "bad"), found[0])
        of = f"{arm}: " if arms.several else ""
        if len(set(kinds)) > 1 and "bad" in kinds:
            runs = f" in {kinds.count('bad')} of {len(found)} runs"
            said.append(worst._replace(short=of + worst.short + runs))
        else:
            said.append(worst._replace(short=of + worst.short))
        if constant := [own for record in arms.runs[arm].values() if (own := one_class(record)) is not None]:
            said.append(constant[0]._replace(short=of + constant[0].short))
    if arms.several and not arms.unpaired:
        for arm in [arm for arm in arms.runs if arm != arms.baseline]:
            names = arms.metrics()
            for name in ("auc" if "auc" in names else "accuracy", *GAPS):
                pair, seeds = arms.paired(arm, name)
                if seeds and name in names:
                    said.append(compared(arm, arms.baseline, name, pair, seeds))
    return [*said, privacy(arms.records)]


def _reproduce(arms: Arms, made: Origin, paths: Sequence[Path]) -> list[str]:
    """Commands, one a line: of one run, of a comparison of methods, or of the first runs of anything else."""
    if not arms.several:
        return [made.command]
    if len(paths) == 1 and (plan := GridPlan.load(paths[0])).kind == "methods":  # one folder of several runs
        command = origin(plan.common, paths[0]).command
        if command.startswith("safegnn train --"):
            also = f" --methods {','.join(plan.settings)} --seeds {plan.seeds}"
            return [command.replace("safegnn train", "safegnn compare", 1) + also]
    return [f"{record.path.name}: {origin(record.config, record.path).command}" for record in arms.records[:8]]


def _warnings(arms: Arms, missing: Sequence[str]) -> list[str]:
    """What a reader has to know before quoting a figure."""
    said: dict[str, None] = dict.fromkeys([*missing, *arms.doubles])
    if arms.unpaired:
        said[f"Differences are not paired: {arms.unpaired}."] = None
    if arms.several and len({record.completed for record in arms.records}) > 1:
        said["Runs have different numbers of rounds; their last rounds are compared."] = None
    for own in arms.runs.values():
        for record in own.values():
            for line in _of_run(record):
                said[f"{record.path.name}: {line}" if arms.several else _sentence_case(line)] = None
    return list(said)


def _sentence_case(line: str) -> str:
    """A file's name or a path at its beginning stays as it is."""
    first = line.partition(" ")[0]
    return line if "." in first or "/" in first else line[:1].upper() + line[1:]


def _of_run(record: Record) -> list[str]:
    """The warnings of one run."""
    config, test = record.config, record.last()
    said = [*record.faults, *((record.data or {}).get("notes") or [])]
    if record.stopped:
        said.append(record.stopped)
    if not record.rounds:
        said.append("no round was completed: there is nothing to show but settings")
    elif len(record.costs) < len(record.rounds):
        said.append(f"costs.csv lacks {len(record.rounds) - len(record.costs)} of {len(record.rounds)} rounds")
    found = learned(record)
    if found.kind == "bad":
        said.append(f"the model is near chance, and gaps of such a model mean little: {found.why}")
    if (constant := one_class(record)) is not None:
        said.append(f"{constant.short}: {constant.why}")
    for gap, facts in (test.get("gaps") or {}).items():
        few = [f"{facts[f'n_s{g}']} nodes with s = {g}" for g in (0, 1) if (facts.get(f"n_s{g}") or 0) < _FEW]
        if few:
            said.append(f"{NAMES.get(gap, gap)} is of {' and '.join(few)}: mostly chance")
    for name, why in (test.get("undefined") or {}).items():
        if name in NAMES:
            said.append(f"test {NAMES[name]} is undefined: {why}")
    counts = test.get("counts") or {}
    if (effective := counts.get("nodes_effective", counts.get("nodes"))) != counts.get("nodes"):
        said.append(f"clients share nodes: intervals are as wide as for {effective} nodes, not {counts['nodes']}")
    if config.privacy.clip_norm is not None and not record.private:
        said.append("clipping without noise protects nothing (privacy.clip_norm without privacy.noise_multiplier)")
    if not record.private and config.engine.name == "embedded" and config.federation.cohort < HIDING_COHORT:
        said.append(
            f"a cohort of {config.federation.cohort} without noise: each member can learn much about the others"
        )
    if lost := sum(record.left_out.values()):
        said.append(f"{lost} uploads had no part in their round; see 'What each party saw'")
    bound = [
        (r["model_difference"], r["model_difference_bound"])
        for r in record.rounds
        if r.get("model_difference") is not None
    ]
    if any(difference > most for difference, most in bound):
        said.append("a released model lies further from float64 than its bound allows")
    for again in (record.environment or {}).get("resumed", ()):
        said.append(
            f"from round {again.get('after_round', '?')} on it went on with other versions; see environment.json"
        )
    return said
