"""`safegnn account`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, cast

import typer

from orchestrator.cli.options import File, Json, Overrides, Presets, load
from orchestrator.cli.printing import print_json, print_rows, say
from orchestrator.config import Config
from orchestrator.errors import ConfigError

if TYPE_CHECKING:
    from orchestrator.privacy.plan import PrivacyPlan

__all__ = ["account"]


def account(
    sampler: Annotated[
        str | None, typer.Option("--sampler", help="fixed (cohorts of exactly q, replace-one), poisson, or cyclic.")
    ] = None,
    clients: Annotated[int | None, typer.Option("--clients", help="n, the number of clients.")] = None,
    cohort: Annotated[
        int | None, typer.Option("--cohort", help="q, clients in a round; with poisson the mean.")
    ] = None,
    rounds: Annotated[int | None, typer.Option("--rounds", min=1, max=10**9, help="T, the number of rounds.")] = None,
    noise_multiplier: Annotated[
        float | None, typer.Option("--noise-multiplier", help="sigma, relative to the L2 sensitivity.")
    ] = None,
    target_epsilon: Annotated[
        float | None, typer.Option("--target-epsilon", help="Find the least sigma that keeps this epsilon.")
    ] = None,
    delta: Annotated[
        float | None, typer.Option("--delta", help="Of (epsilon, delta)-differential privacy; default: 1e-5.")
    ] = None,
    accountant: Annotated[
        str | None, typer.Option("--accountant", help="tightest, the default, rdp, pld or paper.")
    ] = None,
    noise: Annotated[
        str | None,
        typer.Option(
            "--noise",
            help="each_full, the default: sigma at each server; split: sigma in sum, as in the paper; clients: theirs.",
        ),
    ] = None,
    honest_clients: Annotated[
        int | None, typer.Option("--honest-clients", help="With --noise clients: of how many clients' noise sigma is.")
    ] = None,
    preset: Presets = None,
    config: File = None,
    set_: Overrides = None,
    as_json: Json = False,
) -> None:
    """Say what noise is worth: from sigma to epsilon, or from a target epsilon to sigma.

    Epsilon is for a client's whole data, as an outsider sees the released models; beside it stand the views of another
    client and of a server, which knows who takes part. Of settings (--preset, --config, --set) it is what training
    would state: with the sums that are released besides, and the count of norms.
    """
    from orchestrator.experiments.tables import short
    from orchestrator.privacy import statement
    from orchestrator.privacy.plan import PrivacyPlan

    memberships: int | None = 1
    sizes = (sampler, clients, cohort, rounds, honest_clients)
    numbers = (*sizes, noise_multiplier, target_epsilon, delta, accountant, noise)
    if preset or config or set_:
        if any(number is not None for number in numbers):
            raise ConfigError(
                "settings say all that there is to account for: leave the other options out, or use --set"
            )
        settings = load(preset, config, set_)
        (plan, rounds), memberships = _of_settings(settings), settings.clients.memberships
    else:
        if sampler is None or clients is None or cohort is None or rounds is None:
            raise ConfigError(
                "give --sampler, --clients, --cohort and --rounds, or settings: --preset, --config, --set"
            )
        if (noise_multiplier is None) == (target_epsilon is None):
            raise ConfigError("give one of --noise-multiplier and --target-epsilon")
        sigma = 1.0 if noise_multiplier is None else noise_multiplier
        plan = PrivacyPlan(
            cast(Any, sampler),  # any text, as the noise: the plan refuses names that it does not know
            clients,
            cohort,
            sigma,
            1e-5 if delta is None else delta,
            accountant or "tightest",
            cast(Any, noise or "each_full"),
            honest=honest_clients,
        )
        if target_epsilon is not None:
            plan = statement.calibrate(plan, rounds, target_epsilon)
    last = rounds
    facts = statement.account(plan, rounds)
    facts["person"] = statement.persons(plan, memberships, lambda other, view: other.epsilon(last, view))
    if as_json:
        print_json(facts)
        return
    print_rows(
        [
            {"rounds": f"{done:,}", **{f"epsilon, {view}": short(value) for view, value in row.items()}}
            for done, row in statement.table(plan, rounds)
        ]
    )
    whose = plan.noise if plan.honest is None else f"of {plan.honest} clients who answer, add theirs and tell nobody"
    say(
        f"noise multiplier {plan.noise_multiplier:g}, {whose}; delta {plan.delta:g}, {plan.adjacency}; accountant "
        f"{plan.accountant}, conversion: {facts['conversion']}; server: for a client in every round"
    )
    if facts["person"] is not None:
        say(statement.persons_line(facts["person"], plan.delta))
    for noisy in facts["sums"]:
        say(f"it counts the sum '{noisy['name']}', noise multiplier {noisy['noise_multiplier']:g}, {noisy['released']}")
    if "warning" in facts:
        say(f"warning: {facts['warning']}")


def _of_settings(settings: Config) -> tuple[PrivacyPlan, int]:
    """What training with these settings would state, and of how many rounds. Raises ConfigError where it is nothing."""
    from orchestrator.agreement.from_settings import plan_of

    plan = plan_of(settings)
    if plan.parameters is None or plan.noise.multiplier == 0:
        raise ConfigError("privacy.noise_multiplier = 0: without noise epsilon is infinite")
    if plan.privacy is None:
        raise ConfigError(f"no epsilon is stated: {plan.unproven}")
    return plan.privacy, settings.federation.rounds
