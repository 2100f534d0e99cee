"""Before the first round: secure sums of what the clients' method asks for, and what clients prepare together.

The order of a sum: it is charged in `privacy.json`, released, and kept in the checkpoint's folder, from where a resumed
run takes it. What a crash leaves out is done again, and charged again.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import asdict, replace
from typing import Any

import numpy as np

from orchestrator.agreement.round_plan import RoundPlan
from orchestrator.agreement.sum_plan import sum_plan
from orchestrator.client.summands import Answers, Statistic
from orchestrator.config import Config
from orchestrator.coordinator.engine import Engine
from orchestrator.coordinator.population import Hosts
from orchestrator.coordinator.run_folder import Checkpoint, RunFolder
from orchestrator.coordinator.sums import Summation, Total
from orchestrator.errors import ConfigError, RunError
from orchestrator.methods import method_class
from orchestrator.privacy.budget import Budget
from orchestrator.secure_sum import Sizes

__all__ = ["SumEngine", "prepare_clients"]

SumEngine = Callable[[str, int, RoundPlan], Engine]
"""Makes the engine of a sum from its name, length and plan."""


def prepare_clients(
    config: Config,
    plan: RoundPlan,
    folder: RunFolder,
    pool: Hosts,
    budget: Budget | None,
    checkpoint: Checkpoint,
    sizes: Sizes,
    engine: SumEngine,
    announce: Callable[[str], None],
) -> Checkpoint:
    """Tell clients the sums, and give them the states of the checkpoint or let them prepare; returns where that leads.

    Raises:
        SafeGNNError: with one line; what was released is charged.
    """
    facts = _sum_up(config, plan, folder, pool, budget, sizes, engine, announce)
    for name, total in checkpoint.totals.items():
        pool.hear_total(name, total)
    if checkpoint.states:
        pool.restore(checkpoint.states)
    elif steps := method_class(config.method.name).preparations(config):
        if plan.privacy is not None:
            raise ConfigError(
                f"method.name = {config.method.name}: its clients prepare together, which no epsilon counts; "
                "its entry in orchestrator/registry.py has to say so (unaccounted)"
            )
        facts |= _prepare_together(config, plan, pool, sizes, engine, steps, announce)
        states = pool.save(0, range(sizes.clients), folder.state_dir)
        checkpoint = replace(checkpoint, states=states)
        folder.save(checkpoint)
    if facts:
        folder.save_preparation({**(folder.preparation() or {}), **facts})
    return checkpoint


def _sum_up(
    config: Config,
    plan: RoundPlan,
    folder: RunFolder,
    pool: Hosts,
    budget: Budget | None,
    sizes: Sizes,
    engine: SumEngine,
    announce: Callable[[str], None],
) -> dict[str, Any]:
    """Every sum in its turn, as a client's numbers for one may depend on those before; returns what they cost."""
    totals, costs = folder.totals(), {}
    for described in (s for s in config.method.statistics() if not s.each_round):
        name, length = described.name, described.length(sizes)
        if name not in totals:
            own = sum_plan(described, sizes.clients, plan)
            with Summation(described, length, engine(name, length, own)) as summation:
                if budget is not None:
                    budget.charge_sum(name)
                    folder.save_privacy(budget.state())
                total = summation.total(1, range(sizes.clients), pool, Statistic(name))
            totals[name], costs[name] = total.numbers, _cost(total, length)
            folder.save_totals(totals)
            announce(f"clients added up '{name}' on shares" + _failed(total.left_out))
        elif budget is not None and not budget.released(name):
            raise RunError(f"{folder.path}: holds the sum '{name}', but no account of it")
        if totals[name].shape != (length,):
            raise RunError(f"{folder.path}: its sum '{name}' has {totals[name].size} numbers, expected {length}")
        pool.hear_total(name, totals[name])
    return {"sums": costs} if costs else {}


def _prepare_together(
    config: Config,
    plan: RoundPlan,
    pool: Hosts,
    sizes: Sizes,
    engine: SumEngine,
    steps: int,
    announce: Callable[[str], None],
) -> dict[str, Any]:
    """In each step all ask, all answer all others on shares, each hears the sum of its answers; returns what it cost.

    ``bytes``: of arrays, to and from clients, all together; a question goes to every other client.
    """
    started, sent, described = time.perf_counter(), 0, config.method.answers()
    with ExitStack() as stack:
        summation: Summation | None = None
        if described is not None:
            own, length = sum_plan(described, sizes.clients, plan), described.length(sizes)
            summation = stack.enter_context(Summation(described, length, engine(described.name, length, own)))
        for step in range(steps):
            questions = pool.ask(step)
            heard: dict[int, np.ndarray | None] = dict.fromkeys(questions)
            said = f"clients prepare together: step {step + 1} of {steps}"
            if summation is not None:
                total = summation.total(step + 1, range(sizes.clients), pool, Answers(step, questions))
                heard = dict(zip(questions, np.split(total.numbers, sizes.clients), strict=True))
                asked = sum(value.nbytes for question in questions.values() for value in question.values())
                sent += sizes.clients * (asked + total.cost.upload_bytes) - asked + total.numbers.nbytes
                said += _failed(total.left_out)
            pool.hear(step, heard)
            announce(said)
    return {"steps": steps, "seconds": time.perf_counter() - started, "bytes": sent}


def _cost(total: Total, length: int) -> dict[str, Any]:
    left_out = [{"client": client, "reason": reason} for client, reason in total.left_out.items()]
    return {"numbers": length, **asdict(total.cost), "left_out": left_out}


def _failed(left_out: Mapping[int, str]) -> str:
    return "".join(f"; without client {client}: {reason}" for client, reason in [*left_out.items()][:3])
