"""What a finished run says: its pictures and one summary."""

from __future__ import annotations

from collections import Counter
from statistics import median
from typing import Any, Literal

from orchestrator.agreement.evaluation_sum import exact_metrics
from orchestrator.agreement.from_settings import plan_of
from orchestrator.config import Config
from orchestrator.coordinator.cohorts import fingerprint, sample_cohort
from orchestrator.coordinator.run_folder import RunFolder
from orchestrator.errors import RunError
from orchestrator.evaluation.figures import metric_names
from orchestrator.evaluation.metrics import moving_average
from orchestrator.privacy.accountant import ACCOUNTANTS
from orchestrator.privacy.budget import Budget
from orchestrator.privacy.plan import PrivacyPlan, View
from orchestrator.privacy.statement import persons
from orchestrator.reports.plots import plot_costs, plot_curves

__all__ = ["draw_run", "metrics_covered", "no_epsilon", "privacy_report", "summarise_run"]

_MASKS = {"validation": "val", "test": "test"}


def draw_run(folder: RunFolder, title: str) -> None:
    """Draw `curves.png` and `costs.png`. Raises RunError for a run that has no completed round."""
    records, costs = _rounds(folder)
    plot_curves(records, folder.path / "curves.png", title)
    plot_costs(costs, folder.path / "costs.png", title)


def summarise_run(folder: RunFolder) -> dict[str, Any]:
    """What a run has come to, of plain JSON values.

    `validation` and `test` hold the metrics of the last round's model on those nodes; under the same names `gaps` says
    how sure its gaps are, `counts` of how many nodes, and `undefined` why a metric is null. `validation_ma20` are means
    over the last 20 rounds on the validation nodes, null after a single round. `costs` are medians over the rounds,
    `preparation` is what went before, `data` what was trained on and what of the data was not.

    Raises:
        RunError: the run has no completed round.
    """
    records, costs = _rounds(folder)
    last = records[-1]
    names = metric_names(last["val"])
    return {
        "run": str(folder.path),
        "rounds": last["round"],
        "validation": {metric: last["val"][metric] for metric in names},
        "validation_ma20": {metric: moving_average([row["val"][metric] for row in records])[-1] for metric in names},
        "test": {metric: last["test"][metric] for metric in names},
        "gaps": {name: last[mask].get("gaps", {}) for name, mask in _MASKS.items()},
        "counts": {name: last[mask].get("counts", {}) for name, mask in _MASKS.items()},
        "undefined": {name: last[mask]["undefined"] for name, mask in _MASKS.items()},
        "costs": {key: median(row[key] for row in costs) for key in costs[0] if key != "round"},
        "preparation": folder.preparation(),
        "data": folder.data(),
    }


def _rounds(folder: RunFolder) -> tuple[list[dict[str, Any]], list[dict[str, float]]]:
    records, costs = folder.records(), folder.costs()
    if not records or not costs:
        raise RunError(f"{folder.path}: no round was completed")
    return records, costs


def no_epsilon(config: Config) -> str | None:
    """Why a run with noise states no epsilon; None where it does, and without noise."""
    plan = plan_of(config)
    return None if plan.noise.multiplier == 0 else plan.unproven


def metrics_covered(config: Config) -> Literal["covered", "exact", "none"]:
    """Whether the epsilon of a run covers its metrics, or there are none."""
    if config.evaluation.where == "nowhere":
        return "none"
    return "covered" if exact_metrics(config) is None else "exact"


def privacy_report(folder: RunFolder, config: Config) -> dict[str, Any] | None:
    """What a run may claim about the privacy of its clients; None where it may claim nothing.

    `simulated`: nobody was protected, a run on shares with these settings would be. `views` are epsilons after the last
    round: an outsider's, which is `epsilon`, another client's, and a server's for the client that was drawn most often,
    in `participations` rounds. Clip bound, sensitivity and fresh noise are those of the last round; of `bands` above 1
    earlier noise is taken back from it. `sums` are what else was
    released with noise, and how often; `metrics` says whether epsilon covers those that the run recorded: "covered",
    "exact", which it does not, or "none". `person` is what `statement.persons` says of a person in several clients, to
    servers for one whose clients were all drawn as often as any was. `stopped` says why training ended early.

    Raises:
        RunError: the run's record of its releases is missing or damaged.
    """
    records = folder.records()
    clip_norm = records[-1]["clip_norm"] if records else None
    rounds = plan_of(config)
    plan = rounds.at(clip_norm).privacy if records else None
    if plan is None:
        return None
    state = folder.load_privacy()
    if state is None:
        raise RunError(f"{folder.path}: holds no account of what it released")
    drawn, seed = Counter[int](), folder.cohort_seed(config)
    budget = Budget(plan, config.privacy.epsilon_budget, fingerprint(seed, rounds.lasting)).restore(state)
    for number in range(1, budget.last + 1):
        drawn.update(sample_cohort(config.federation, config.clients.count, seed, number))

    def of_person(plan: PrivacyPlan, view: View) -> float:
        return Budget(plan, run=budget.run).restore(state).seen_by(view, most)

    most, last = max(drawn.values(), default=0), records[-1]["round"]
    stopped = budget.refusal(last + 1) if last < config.federation.rounds and not budget.allows(last + 1) else None
    return {
        "simulated": config.engine.name in ("plaintext", "masking"),
        "epsilon": budget.epsilon,
        "delta": plan.delta,
        "adjacency": plan.adjacency,
        "accountant": plan.accountant,
        "conversion": ACCOUNTANTS[plan.accountant].conversion,
        "amplified": plan.amplified,
        "noise": plan.noise,
        "noise_multiplier": plan.noise_multiplier,
        "bit_noise_multiplier": plan.bit_noise_multiplier,
        "clip_norm": clip_norm,
        "sensitivity": plan.sensitivity,
        "server_stddev": rounds.at(clip_norm).terms.noise_stddev,
        "client_stddev": rounds.at(clip_norm).terms.client_stddev,
        "honest_clients": plan.honest,
        "bands": len(rounds.bands) + 1,
        "views": {
            "outsider": budget.epsilon,
            "client": budget.seen_by("client"),
            "server": budget.seen_by("server", most),
        },
        "participations": most,
        "person": persons(plan, config.clients.memberships, of_person),
        "sums": [
            {"name": s.name, "noise_multiplier": s.noise_multiplier, "released": budget.released(s.name)}
            for s in plan.sums
        ],
        "metrics": metrics_covered(config),
        "stopped": stopped,
    }
