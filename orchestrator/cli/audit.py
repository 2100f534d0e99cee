"""`safegnn audit`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from orchestrator.cli.options import File, Json, Overrides, Presets, load
from orchestrator.cli.printing import print_json, say
from orchestrator.errors import RunError

if TYPE_CHECKING:
    from orchestrator.agreement.round_plan import RoundPlan
    from orchestrator.config import EngineConfig

__all__ = ["audit"]


def audit(
    preset: Presets = None,
    config: File = None,
    set_: Overrides = None,
    trials: Annotated[
        int, typer.Option("--trials", min=2, max=10**7, help="Of each attack; half of them with the canary.")
    ] = 1000,
    confidence: Annotated[float, typer.Option("--confidence", min=0.5, max=1 - 1e-9, help="Of each bound.")] = 0.95,
    one_run: Annotated[
        bool,
        typer.Option("--one-run", help="All canaries in one sequence of rounds, as often as a client of the run."),
    ] = False,
    as_json: Json = False,
) -> None:
    """Attack the settings' privacy statement with canaries, and say what epsilon is at least.

    Nothing is trained: rounds with the settings' noise and rule go through two live servers. With --one-run --trials is
    the number of canaries, no noise is taken for independent, and bands are attacked too. Exit status 1 where the
    attack finds more than is stated.
    """
    from orchestrator.agreement.from_settings import plan_of
    from orchestrator.experiments import privacy_audit

    settings = load(preset, config, set_, engine="embedded")
    plan, rounds = plan_of(settings), settings.federation.rounds
    if one_run:
        _one_run(plan, settings.engine, rounds, trials, confidence, as_json)
        return
    findings = privacy_audit.audit(plan, settings.engine, rounds, trials, confidence)
    refuted = [name for name, finding in findings.items() if finding.refuted]
    if as_json:
        document = {
            "trials": trials,
            "confidence": confidence,
            "delta": plan.noise.delta,
            "accountant": plan.noise.accountant,
            "rounds": rounds,
            "observers": {name: finding.as_dict() for name, finding in findings.items()},
            "refuted": refuted,
        }
        print_json(document)
    else:
        for name, found in findings.items():
            multiplier = f"at most {1 / found.rates.mu:.4g}" if found.rates.mu else "whatever it is"
            say(
                f"{name}: epsilon of the run stated {found.run:.4g}, audited at least {found.run_found:.4g}; of a "
                f"round stated {found.round:.4g}, audited at least {found.round_found:.4g}; noise multiplier stated "
                f"{found.multiplier:.4g}, audited {multiplier}"
            )
        assert plan.privacy is not None
        say(
            f"{trials} trials of each attack through two live servers; confidence {100 * confidence:g} %, delta "
            f"{plan.privacy.delta:g}, {plan.privacy.adjacency}, {rounds} rounds; a round: one in which the client "
            "takes part; a server: for a client in every round"
        )
    if refuted:
        raise RunError(f"the privacy statement is refuted for {', '.join(refuted)}: more was found than is stated")


def _one_run(
    plan: RoundPlan, chosen: EngineConfig, rounds: int, canaries: int, confidence: float, as_json: bool
) -> None:
    from orchestrator.experiments.one_run_audit import audit_one_run, sequence_of

    found = audit_one_run(plan, chosen, rounds, canaries, confidence)
    refuted, turns = [name for name, heard in found.items() if heard.refuted], sequence_of(plan, rounds, canaries).turns
    if as_json:
        document = {"turns": turns, "confidence": confidence, "delta": plan.noise.delta, "bands": len(plan.bands) + 1}
        print_json(
            {**document, "observers": {name: heard.as_dict() for name, heard in found.items()}, "refuted": refuted}
        )
    else:
        for name, heard in found.items():
            guesses = heard.guesses
            say(
                f"{name}: epsilon of {turns} rounds in which the client takes part stated {heard.epsilon:.4g}, audited "
                f"at least {heard.found:.4g}: {guesses.right} of {guesses.made} guesses are right, of "
                f"{guesses.canaries} canaries; fresh noise is {heard.stddev:.4g} times as large as stated, its largest "
                f"correlation {heard.correlation:.2g}"
            )
        say(f"one run of two live servers an observer; confidence {100 * confidence:g} %, delta {plan.noise.delta:g}")
    if refuted:
        raise RunError(f"the privacy statement is refuted for {', '.join(refuted)}: more was found, or other noise")
