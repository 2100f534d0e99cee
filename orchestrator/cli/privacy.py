"""`safegnn account`."""

from __future__ import annotations

from typing import Annotated, Any, cast

import typer

from orchestrator.cli.options import Json
from orchestrator.cli.printing import print_json, print_rows, say
from orchestrator.errors import ConfigError

__all__ = ["account"]


def account(
    sampler: Annotated[
        str, typer.Option("--sampler", help="fixed (cohorts of exactly q, replace-one), poisson, or cyclic.")
    ],
    clients: Annotated[int, typer.Option("--clients", help="n, the number of clients.")],
    cohort: Annotated[int, typer.Option("--cohort", help="q, clients in a round; with poisson the mean.")],
    rounds: Annotated[int, typer.Option("--rounds", min=1, max=10**9, help="T, the number of rounds.")],
    noise_multiplier: Annotated[
        float | None, typer.Option("--noise-multiplier", help="sigma, relative to the L2 sensitivity.")
    ] = None,
    target_epsilon: Annotated[
        float | None, typer.Option("--target-epsilon", help="Find the least sigma that keeps this epsilon.")
    ] = None,
    delta: Annotated[float, typer.Option("--delta", help="Of (epsilon, delta)-differential privacy.")] = 1e-5,
    accountant: Annotated[str, typer.Option("--accountant", help="tightest, rdp, pld or paper.")] = "tightest",
    noise: Annotated[
        str, typer.Option("--noise", help="each_full: sigma at each server; split: sigma in sum, as in the paper.")
    ] = "each_full",
    as_json: Json = False,
) -> None:
    """Say what noise is worth: from sigma to epsilon, or from a target epsilon to sigma.

    Epsilon is for a client's whole data, as an outsider sees the released models; beside it stand the views of another
    client and of a server, which knows who takes part.
    """
    from orchestrator.experiments.tables import short
    from orchestrator.privacy import statement
    from orchestrator.privacy.plan import PrivacyPlan

    if (noise_multiplier is None) == (target_epsilon is None):
        raise ConfigError("give one of --noise-multiplier and --target-epsilon")
    sigma = 1.0 if noise_multiplier is None else noise_multiplier
    # these are any text: the plan refuses names that it does not know
    plan = PrivacyPlan(cast(Any, sampler), clients, cohort, sigma, delta, accountant, cast(Any, noise))
    if target_epsilon is not None:
        plan = statement.calibrate(plan, rounds, target_epsilon)
    facts = statement.account(plan, rounds)
    if as_json:
        print_json(facts)
        return
    print_rows(
        [
            {"rounds": f"{done:,}", **{f"epsilon, {view}": short(value) for view, value in row.items()}}
            for done, row in statement.table(plan, rounds)
        ]
    )
    say(
        f"noise multiplier {plan.noise_multiplier:g}, {noise}; delta {plan.delta:g}, {plan.adjacency}; accountant "
        f"{plan.accountant}, conversion: {facts['conversion']}; server: for a client in every round"
    )
    if "warning" in facts:
        say(f"warning: {facts['warning']}")
