"""The round loop: sample a cohort, let it train, aggregate, evaluate, record, checkpoint."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from orchestrator.agreement.evaluation_sum import EVALUATION, evaluated_every, summed_tables
from orchestrator.agreement.from_settings import plan_of
from orchestrator.agreement.round_plan import HIDING_COHORT, RoundPlan
from orchestrator.agreement.sum_plan import sum_plan
from orchestrator.client.host import single_threaded
from orchestrator.client.ledger import Account
from orchestrator.client.summands import Statistic
from orchestrator.config import Config
from orchestrator.coordinator.audit import audit as audit_round
from orchestrator.coordinator.audit import auditor
from orchestrator.coordinator.cohorts import clients_config, fingerprint, sample_cohort
from orchestrator.coordinator.engine import Aggregation, Engine, RoundCost, too_few
from orchestrator.coordinator.factory import refuse_uncovered
from orchestrator.coordinator.population import Hosts, Population, Simulated
from orchestrator.coordinator.preparation import SumEngine, prepare_clients
from orchestrator.coordinator.round_result import RoundResult, reason_of
from orchestrator.coordinator.run_folder import Checkpoint, RunFolder
from orchestrator.coordinator.simulated_clients import Trained
from orchestrator.coordinator.sums import Summation, SummedTables
from orchestrator.errors import ConfigError, RunError
from orchestrator.evaluation.rounds import RoundEvaluation
from orchestrator.graphs import load_graph
from orchestrator.graphs.graph import Graph
from orchestrator.methods import method_class
from orchestrator.models import create_network
from orchestrator.privacy.budget import Budget
from orchestrator.privacy.quantile import next_clip_norm
from orchestrator.registry import METHODS
from orchestrator.secure_sum import Sizes

__all__ = ["model_size", "train"]


def model_size(config: Config) -> int:
    """How many numbers a round aggregates: the model's d, and what the method has beside them.

    Raises:
        DataError: the data set is not there.
    """
    graph = load_graph(config.data, config.seed)
    network = create_network(graph.num_features, graph.classes, config.model)
    return network.size + len(method_class(config.method.name).beside(config))


def train(
    config: Config,
    folder: RunFolder,
    *,
    resume: bool = False,
    audit: bool = False,
    observe: Callable[[RoundResult], None] = lambda result: None,
    announce: Callable[[str], None] = lambda text: None,
    graph: Graph | None = None,
    clients: Sequence[Graph] | None = None,
    engine: Engine | None = None,
    population: Population | None = None,
) -> np.ndarray:
    """Run the configured rounds, or as many as the privacy budget allows; returns the final model, float64 (d,).

    Where every client has a model of its own, these are what is saved, and the initial one is returned.

    Args:
        config: the whole tree.
        folder: where everything is recorded; with `resume`, where to continue from, with the same settings, of which
            `federation.rounds` may be others, data, clients and network.
        audit: also compute each aggregation in float64 from the clients' plaintext. Simulation only: it defeats the
            protection that the engine gives.
        observe: called after every round; what writes TensorBoard logs is an observer of `orchestrator.reports`.
        announce: called with what goes on before the first round, where that takes time, and with what a user should
            know before it.
        graph, clients, engine: instead of what the configuration names, for callers that have them already.
        population: instead of clients that are cut out of a graph.

    Raises:
        BusyError: another process writes to the folder.
        RunError: the folder holds rounds already and is not to be resumed, or began with something else.
        SafeGNNError: with one line; the last checkpoint stands.
    """
    single_threaded()
    plan = plan_of(config)
    refuse_uncovered(config, plan)
    if engine is not None and engine.plan != plan:
        raise ConfigError("engine: it was made from another plan than the settings': its noise would not be theirs")
    with folder.lock:
        if folder.begun and not resume:
            raise RunError(f"{folder.path}: holds rounds of a run already; resume it, or take another folder")
        population = population or Simulated(config, graph, clients)
        network = population.network
        if differing := folder.settle(population.inputs(config)):
            announce(f"not as when the run began: {'; '.join(differing)}")
        seed = folder.cohort_seed(config)
        checkpoint = folder.load() if resume else None
        budget = _budget(plan, folder, seed, 0 if checkpoint is None else checkpoint.round, resume)
        beside = method_class(config.method.name).beside(config)
        start = np.concatenate([network.initial_parameters(config.seed), beside])
        checkpoint = checkpoint or Checkpoint(0, start, {})
        if checkpoint.parameters.shape != start.shape or checkpoint.round > config.federation.rounds:
            raise RunError(
                f"{folder.path}: its checkpoint is of round {checkpoint.round} and of {checkpoint.parameters.size} "
                f"parameters; these settings have {config.federation.rounds} rounds and {len(start)} parameters"
            )
        if checkpoint.clip_norm is None:
            checkpoint = replace(checkpoint, clip_norm=config.privacy.clip_norm)
        if resume and RunFolder.open(folder.path)[1] != config:
            folder.save_settings(config)
        model = checkpoint.parameters
        personal = METHODS[config.method.name].personal
        if _goes_on(config, budget, checkpoint.round + 1) or (personal and not folder.has_models):
            folder.drop_results()
            sizes, private = population.sizes, clients_config(config, seed)
            sum_engine = partial(population.sum_engine, config, folder)
            with ExitStack() as held:
                account = Account(plan.privacy, "" if budget is None else budget.run, secrets.token_hex(8))
                pool = population.hosts(private, account)
                held.callback(pool.close)
                engine = held.enter_context(engine or population.engine(config, folder, len(start)))
                tables = _tables(config, plan, sizes, pool, sum_engine)
                sums = _sums_of_cohorts(config, plan, sizes, sum_engine)
                for summation in (*sums, *([] if tables is None else [tables])):
                    held.enter_context(summation)
                engine.start(checkpoint.parameters)
                for refusal in population.begin(pool, engine):
                    announce(refusal)
                if warning := _small_cohort(plan):
                    announce(warning)
                if plan.noise.multiplier > 0 and plan.unproven is not None:
                    announce(f"no epsilon is stated: {plan.unproven}")
                if plan.privacy is not None and not plan.privacy.amplified and plan.rule.cohort < plan.clients:
                    announce(
                        "clients keep state, so that epsilon counts on no sampling of cohorts of fixed size: it is "
                        "smaller with method.stateful = false or federation.sampling = poisson"
                    )
                every = evaluated_every(config)
                evaluation = population.evaluation(config, pool, checkpoint.evaluations, tables, every)
                checkpoint = prepare_clients(
                    config, plan, folder, pool, budget, checkpoint, sizes, sum_engine, announce
                )
                told = plan, folder, pool, engine, evaluation, tables, sums, budget
                rounds = _Rounds(config, *told, checkpoint, audit, seed)
                rounds.begin()
                while rounds.cohort is not None:
                    observe(rounds.play(rounds.cohort))
                if personal:
                    _save_own_models(folder, pool, rounds, population)
            model = rounds.model
        if not personal:
            population.trained(model[: network.size]).save(folder.model())
        return model


def _tables(config: Config, plan: RoundPlan, sizes: Sizes, pool: Hosts, engine: SumEngine) -> SummedTables | None:
    """Whoever adds up the clients' tables, where they are added up."""
    if config.evaluation.tables != "summed":
        return None
    described = summed_tables(config)
    own = sum_plan(described, sizes.clients, plan)
    return SummedTables(config, sizes, pool, engine(described.name, described.length(sizes), own))


def _sums_of_cohorts(config: Config, plan: RoundPlan, sizes: Sizes, engine: SumEngine) -> list[Summation]:
    """What every round's cohort adds up besides the model."""
    sums = [(s, s.length(sizes)) for s in config.method.statistics() if s.each_round]
    return [Summation(s, length, engine(s.name, length, sum_plan(s, sizes.clients, plan))) for s, length in sums]


def _save_own_models(folder: RunFolder, pool: Hosts, rounds: _Rounds, population: Population) -> None:
    """Write the model of every client that has one and lets it out."""
    for client, own in pool.models(rounds.number - 1, range(population.sizes.clients), rounds.model).items():
        if own is not None:
            population.own_model(client, own).save(folder.model(client))


class _Rounds:
    """The rounds of one run: where it stands, and what takes it one round further.

    Attributes:
        number: the round to come.
        cohort: who takes part in it; None where training ends before it.
        model: the model that was released last, float64 (d,).
        clip_norm: C of the round to come.
    """

    def __init__(
        self,
        config: Config,
        plan: RoundPlan,
        folder: RunFolder,
        pool: Hosts,
        engine: Engine,
        evaluation: RoundEvaluation,
        tables: SummedTables | None,
        sums: Sequence[Summation],
        budget: Budget | None,
        checkpoint: Checkpoint,
        audit: bool,
        seed: int | bytes,
    ) -> None:
        self._config, self._plan, self._folder, self._pool = config, plan, folder, pool
        self._engine, self._evaluation, self._budget, self._audited = engine, evaluation, budget, audit
        self._tables, self._sums, self._totals = tables, sums, dict(checkpoint.totals)
        self._checkpoint, self._unsaved, self._seed = checkpoint, set[int](), seed
        self.number, self.model, self.clip_norm = checkpoint.round + 1, checkpoint.parameters, checkpoint.clip_norm
        self.cohort: list[int] | None = None

    def begin(self) -> None:
        """Draw the cohort of the round to come, and begin with what the round needs."""
        number, federation = self.number, self._config.federation
        self.cohort = None
        if _goes_on(self._config, self._budget, number):
            self.cohort = sample_cohort(federation, self._config.clients.count, self._seed, number)
            self._engine.prepare(number, len(self.cohort), self._plan.at(self.clip_norm).terms)

    def play(self, cohort: list[int]) -> RoundResult:
        """One round, from the released model to the next one, which is on the disk when this returns."""
        number, before, clip_norm = self.number, self.model, self.clip_norm
        trained, missing = self._train(cohort)
        self._evaluation.trained(number, cohort, before)
        if self._budget is not None:  # charged, and that on the disk, before there is a result
            self._budget.charge(number)
            self._folder.save_privacy(self._budget.state())
        decoder, aggregation = self._engine.decoder, self._engine.aggregate(number, cohort)
        self.clip_norm, self.number = self._adapted(aggregation.within), number + 1
        evaluated = self._evaluation.every > 0 and number % self._evaluation.every == 0
        if evaluated:
            self._charge_evaluation()
        self.begin()  # the servers prepare while this one evaluates
        if self.cohort is None and not evaluated:
            self._charge_evaluation()
            evaluated = True
        opened: list[np.ndarray] = []
        if aggregation.answers is not None:
            received = self._pool.deliver(number, cohort, aggregation.answers, decoder, reveal=self._audited)
            opened = [received[slot] for slot in sorted(received)]
        elif aggregation.parameters is not None:
            self.model, opened = aggregation.parameters, [aggregation.parameters]
        left_out = {**aggregation.left_out, **missing}
        audits = [upload for slot, upload in trained.audits.items() if slot not in left_out]
        spent, lacking = self._add_up(number, cohort)
        difference, bound = audit_round(self._plan.at(clip_norm), number, before, opened, audits)
        if evaluated:
            self._evaluation.aggregated(number, cohort, self.model)
            spent += RoundCost() if self._tables is None else self._tables.cost
        else:
            self._evaluation.passed(number)
        result = RoundResult(
            number,
            cohort,
            self.model,
            self._evaluation.evaluations(),
            trained.seconds,
            aggregation.cost,
            difference,
            bound,
            clip_norm,
            aggregation.within,
            None if self._budget is None else self._budget.epsilon,
            {**self._evaluation.facts(), **lacking},
            aggregation.weights,
            left_out,
            spent if self._sums or self._tables is not None else None,
        )
        self._keep(result, aggregation)
        return result

    def _add_up(self, number: int, cohort: list[int]) -> tuple[RoundCost, dict[str, Any]]:
        """Let everybody hear what the cohort adds up besides the model, which was charged with the round.

        Returns what it cost, and by sum whose part is missing.
        """
        spent, lacking = RoundCost(), {}
        for summation in self._sums:
            name = summation.described.name
            total = summation.total(number, cohort, self._pool, Statistic(name))
            self._totals[name], spent = total.numbers, spent + total.cost
            lacking[f"{name}_left_out"] = [{"client": c, "reason": reason} for c, reason in total.left_out.items()]
            self._pool.hear_total(name, total.numbers)
        return spent, lacking

    def _charge_evaluation(self) -> None:
        """Charge the sum of the clients' tables, where it has noise that is counted, before it is released."""
        if self._budget is not None and self._budget.covers(EVALUATION):
            self._budget.charge_sum(EVALUATION)
            self._folder.save_privacy(self._budget.state())

    def _train(self, cohort: list[int]) -> tuple[Trained, dict[int, str]]:
        """What came back from the cohort; and, by slot, why clients have no upload.

        Raises:
            CohortError: too few clients have one.
        """
        number, least = self.number, self._plan.min_cohort
        submit, audits = partial(self._engine.submit, number), auditor(self._plan) if self._audited else None
        personal = METHODS[self._config.method.name].personal
        trained = self._pool.train(number, cohort, self.model, self._engine.encoder, submit, audits, keyed=personal)
        missing = {slot: reason_of(error) for slot, error in trained.missing.items()}
        if len(cohort) - len(missing) < least:
            raise too_few(number, cohort, missing, least) from next(iter(trained.missing.values()), None)
        return trained, missing

    def _adapted(self, within: float | None) -> float | None:
        """The clip bound of the next round: the same, or what the released count makes of it."""
        if self.clip_norm is None or within is None:
            return self.clip_norm
        quantile, expected = self._config.privacy.quantile, self._config.federation.cohort
        target, rate, limits = quantile.target, quantile.learning_rate, self._plan.clip_limits()
        return next_clip_norm(self.clip_norm, within, expected, target, rate, limits)

    def _keep(self, result: RoundResult, aggregation: Aggregation) -> None:
        """Record the round, and where it is time for that, or training ends, replace the checkpoint."""
        number, folder, record = result.round, self._folder, result.record()
        if self._plan.noise.multiplier == 0:  # else epsilon counts on outsiders not knowing it; see docs/privacy.md
            record["cohort"] = result.cohort
        folder.append(record, result.costs())
        self._unsaved.update(result.cohort)
        if self.cohort is None or number % self._config.run.checkpoint_rounds == 0:
            if aggregation.weights is not None and result.cohort:
                present = [c for slot, c in enumerate(result.cohort) if slot not in aggregation.left_out]
                folder.save_weights(present, aggregation.weights)
            states = {**self._checkpoint.states, **self._pool.save(number, self._unsaved, folder.state_dir)}
            said = self._evaluation.said
            self._checkpoint = Checkpoint(number, result.parameters, states, self.clip_norm, said, dict(self._totals))
            folder.save(self._checkpoint)
            self._unsaved.clear()


def _goes_on(config: Config, budget: Budget | None, number: int) -> bool:
    """Whether there is such a round."""
    return number <= config.federation.rounds and (budget is None or budget.allows(number))


def _small_cohort(plan: RoundPlan) -> str | None:
    """A warning, where shares are to protect a client that nothing hides among the others of its cohort."""
    if plan.parameters is None or plan.engine == "plaintext" or plan.noise.multiplier > 0:
        return None
    cohort, least = plan.rule.cohort, plan.min_cohort
    if cohort >= HIDING_COHORT and (least >= HIDING_COHORT or plan.sampling == "poisson"):
        return None
    size = f"cohort of {cohort}" if cohort < HIDING_COHORT else f"rounds of as few as {least} clients"
    return (
        f"{size} without differential privacy: each member can learn much about the others; see docs/who-sees-what.md"
    )


def _budget(plan: RoundPlan, folder: RunFolder, seed: int | bytes, completed: int, resume: bool) -> Budget | None:
    """What has been released so far; None where no epsilon can be stated.

    Raises:
        RunError: a resumed run does not say what its completed rounds have released.
    """
    if plan.privacy is None:
        return None
    budget = Budget(plan.privacy, plan.noise.budget, fingerprint(seed, plan.lasting))
    state = folder.load_privacy() if resume else None
    if state is not None:
        budget.restore(state)
    if budget.last < completed:
        raise RunError(f"{folder.path}: {completed} rounds are completed, but only {budget.last} are accounted for")
    return budget
