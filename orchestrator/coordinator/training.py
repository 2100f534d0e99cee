"""The round loop: sample a cohort, let it train, aggregate, evaluate, record, checkpoint."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import numpy as np

from orchestrator.client.host import single_threaded
from orchestrator.client.interface import Encoder
from orchestrator.config import Config, FederationConfig
from orchestrator.coordinator.client_pool import ClientPool
from orchestrator.coordinator.engine import Engine, RoundCost, too_few
from orchestrator.coordinator.factory import create_engine
from orchestrator.coordinator.plaintext import (
    AuditEncoder,
    PlainUpload,
    float64_aggregate,
    float64_personal,
    plain_encoder,
)
from orchestrator.coordinator.round_plan import HIDING_COHORT, RoundPlan
from orchestrator.coordinator.run_folder import Checkpoint, RunFolder
from orchestrator.errors import ConfigError, ProtocolError, RunError, SafeGNNError
from orchestrator.evaluation.classification import ClientsEvaluation
from orchestrator.evaluation.metrics import Evaluation
from orchestrator.evaluation.rounds import round_evaluation
from orchestrator.graphs import client_graphs, load_graph
from orchestrator.graphs.graph import Graph
from orchestrator.methods import method_class
from orchestrator.models import create_network, save_model
from orchestrator.privacy.budget import Budget
from orchestrator.privacy.quantile import next_clip_norm
from orchestrator.registry import METHODS
from orchestrator.seeding import seeded_generator

__all__ = ["RoundResult", "model_size", "sample_cohort", "train"]


@dataclass(frozen=True)
class RoundResult:
    """One completed round.

    Attributes:
        round: from 1.
        cohort: client numbers by slot; none, where a Poisson sample is empty.
        parameters: the released model, float64 (d,); the initial one where every client has a model of its own.
        evaluations: by mask, "val" and "test".
        training_seconds: local training of the cohort.
        cost: the engine's.
        difference: where the run is audited, the largest |released - float64 aggregation of the same uploads|.
        bound: the fixed-point bound that `difference` must keep.
        clip_norm: C of this round; None where updates are not clipped.
        within: the released, noisy number of updates whose norm was at most C, where C follows their quantile.
        epsilon: an outsider's, after this round, at the delta of the settings; None where none can be stated.
        facts: further figures, means over the clients.
        weights: how much each client that took part took from each, float64 (q, q), as far as anybody knows.
        left_out: by slot, why a client of the cohort had no part in the aggregate.
    """

    round: int
    cohort: list[int]
    parameters: np.ndarray
    evaluations: Mapping[str, Evaluation | ClientsEvaluation]
    training_seconds: float
    cost: RoundCost
    difference: float | None = None
    bound: float | None = None
    clip_norm: float | None = None
    within: float | None = None
    epsilon: float | None = None
    facts: Mapping[str, float] = field(default_factory=dict)
    weights: np.ndarray | None = None
    left_out: Mapping[int, str] = field(default_factory=dict)

    def record(self) -> dict[str, Any]:
        """What `metrics.jsonl` holds; the same keys in every round, audited or not, for the columns of the CSV."""
        evaluations = {mask: evaluation.as_dict() for mask, evaluation in self.evaluations.items()}
        audit = {"model_difference": self.difference, "model_difference_bound": self.bound}
        clip = {"clip_norm": self.clip_norm, "updates_within_clip_norm": self.within}
        left_out = [{"client": self.cohort[slot], "reason": reason} for slot, reason in sorted(self.left_out.items())]
        who = {"clients_left_out": len(left_out), "left_out": left_out}
        return {"round": self.round, **evaluations, **audit, **clip, "epsilon": self.epsilon, **who, **self.facts}

    def costs(self) -> dict[str, float]:
        """What `costs.csv` holds; bytes per server, or per client of the cohort."""
        cost = self.cost
        return {
            "round": self.round,
            "training_seconds": self.training_seconds,
            "online_seconds": cost.online_seconds,
            "online_bytes_server0": cost.online_bytes[0],
            "online_bytes_server1": cost.online_bytes[1],
            "online_rounds": cost.rounds,
            "preprocessing_seconds": cost.preprocessing_seconds,
            "preprocessing_bytes_server0": cost.preprocessing_bytes[0],
            "preprocessing_bytes_server1": cost.preprocessing_bytes[1],
            "preprocessing_wait_seconds": cost.waited_seconds,
            "startup_seconds": cost.startup_seconds,
            "upload_bytes_per_client": cost.upload_bytes,
            "download_bytes_per_client": cost.download_bytes,
        }


def model_size(config: Config) -> int:
    """d, the number of parameters of the configured model. Raises DataError where the data set is not there."""
    graph = load_graph(config.data, config.seed)
    return create_network(graph.num_features, graph.classes, config.model).size


def sample_cohort(config: FederationConfig, clients: int, seed: int, round: int) -> list[int]:
    """The cohort of a round, from the shared seed alone, so before anything is uploaded (Algorithm 1, line 9).

    Whoever knows the seed knows every cohort: sampling hides nobody from them.
    """
    generator = seeded_generator(seed, "cohort", round)
    if config.sampling == "poisson":
        return [int(client) for client in np.flatnonzero(generator.random(clients) < config.cohort / clients)]
    chosen = generator.choice(clients, size=config.cohort, replace=config.sampling == "with_replacement")
    return [int(client) for client in chosen]


def train(
    config: Config,
    folder: RunFolder,
    *,
    resume: bool = False,
    audit: bool = False,
    observe: Callable[[RoundResult], None] = lambda result: None,
    announce: Callable[[str], None] = lambda text: None,
    graph: Graph | None = None,
    engine: Engine | None = None,
) -> np.ndarray:
    """Run the configured rounds, or as many as the privacy budget allows; returns the final model, float64 (d,).

    Where every client has a model of its own, these stand in the checkpoint, and the initial one is returned.

    Args:
        config: the whole tree.
        folder: where everything is recorded; with `resume`, where to continue from.
        audit: also compute each aggregation in float64 from the clients' plaintext. Simulation only: it defeats the
            protection that the engine gives.
        observe: called after every round; what writes TensorBoard logs is an observer of `orchestrator.reports`.
        announce: called with what goes on before the first round, where that takes time, and with what a user should
            know before it.
        graph, engine: instead of what the configuration names, for callers that have them already.

    Raises:
        SafeGNNError: with one line; the last checkpoint stands.
    """
    single_threaded()
    plan = RoundPlan.of(config)
    if engine is not None and engine.plan != plan:
        raise ConfigError("engine: it was made from another plan than the settings': its noise would not be theirs")
    graph = graph or load_graph(config.data, config.seed)
    clients = client_graphs(graph, config.clients, config.seed)
    network = create_network(graph.num_features, graph.classes, config.model)
    checkpoint = folder.load() if resume else None
    budget = _budget(plan, folder, 0 if checkpoint is None else checkpoint.round, resume)
    if checkpoint is None:
        checkpoint = Checkpoint(0, network.initial_parameters(config.seed), {})
    if checkpoint.clip_norm is None:
        checkpoint = replace(checkpoint, clip_norm=config.privacy.clip_norm)
    with ClientPool(clients, config) as pool, engine or create_engine(config) as engine:
        engine.start(checkpoint.parameters)
        if warning := _small_cohort(plan):
            announce(warning)
        evaluation = round_evaluation(config, graph, pool, checkpoint.evaluations)
        if checkpoint.states:
            pool.restore(checkpoint.states)
        elif steps := method_class(config.method.name).preparations(config):
            started, sent = time.perf_counter(), 0
            for step in range(steps):
                sent += pool.prepare_together(step)
                announce(f"clients prepare together: step {step + 1} of {steps}")
            checkpoint = replace(checkpoint, states=pool.save(0, range(len(clients)), folder.state_dir))
            folder.save(checkpoint)
            folder.save_preparation({"steps": steps, "seconds": time.perf_counter() - started, "bytes": sent})
        personal = METHODS[config.method.name].personal

        def begin(number: int, clip_norm: float | None) -> list[int] | None:
            """The cohort of a round, for which preparations begin; None where training ends before the round."""
            if number > config.federation.rounds or (budget is not None and not budget.allows(number)):
                return None
            cohort = sample_cohort(config.federation, config.clients.count, config.seed, number)
            engine.prepare(number, len(cohort), plan.at(clip_norm).terms)
            return cohort

        number, cohort = checkpoint.round + 1, begin(checkpoint.round + 1, checkpoint.clip_norm)
        model, clip_norm = checkpoint.parameters, checkpoint.clip_norm
        unsaved: set[int] = set()
        while cohort is not None:
            trained = pool.train(
                number,
                cohort,
                model,
                engine.encoder,
                partial(engine.submit, number),
                _auditor(plan) if audit else None,
                keyed=personal,
            )
            missing = {slot: _reason(error) for slot, error in trained.missing.items()}
            if len(cohort) - len(missing) < plan.min_cohort:
                raise too_few(number, cohort, missing, plan.min_cohort) from next(iter(trained.missing.values()), None)
            evaluation.trained(number, cohort, model)
            if budget is not None:
                budget.charge(number)
                folder.save_privacy(budget.state())
            decoder, aggregation = engine.decoder, engine.aggregate(number, cohort)
            adapted = _adapted(plan, config, clip_norm, aggregation.within)
            following = begin(number + 1, adapted)
            opened: list[np.ndarray] = []
            if aggregation.answers is not None:
                received = pool.deliver(number, cohort, aggregation.answers, decoder, reveal=audit)
                opened = [received[slot] for slot in sorted(received)]
            elif aggregation.parameters is not None:
                opened = [aggregation.parameters]
            left_out = {**aggregation.left_out, **missing}
            audits = [upload for slot, upload in trained.audits.items() if slot not in left_out]
            difference, bound = _audit(plan.at(clip_norm), number, model, opened, audits)
            if aggregation.parameters is not None:
                model = aggregation.parameters
            evaluation.aggregated(number, cohort, model)
            result = RoundResult(
                number,
                cohort,
                model,
                evaluation.evaluations(),
                trained.seconds,
                aggregation.cost,
                difference,
                bound,
                clip_norm,
                aggregation.within,
                None if budget is None else budget.epsilon,
                evaluation.facts(),
                aggregation.weights,
                left_out,
            )
            folder.append(result.record(), result.costs())
            unsaved.update(cohort)
            if following is None or number % config.run.checkpoint_rounds == 0:
                states = {**checkpoint.states, **pool.save(number, unsaved, folder.state_dir)}
                checkpoint = Checkpoint(number, model, states, adapted, evaluation.said)
                folder.save(checkpoint)
                unsaved.clear()
                if aggregation.weights is not None and cohort:
                    present = [c for slot, c in enumerate(cohort) if slot not in aggregation.left_out]
                    folder.save_weights(present, aggregation.weights)
            observe(result)
            number, cohort, clip_norm = number + 1, following, adapted
    if not personal:
        save_model(folder.path / "model.pt", network, model)
    return model


def _small_cohort(plan: RoundPlan) -> str | None:
    """A warning, where shares are to protect a client that nothing hides among the others of its cohort."""
    if plan.parameters is None or plan.engine == "plaintext" or plan.noise.multiplier > 0:
        return None
    cohort, least = plan.rule.cohort, plan.min_cohort
    if cohort >= HIDING_COHORT and (least >= HIDING_COHORT or plan.sampling == "poisson"):
        return None
    size = f"cohort of {cohort}" if cohort < HIDING_COHORT else f"rounds of as few as {least} clients"
    return f"{size} without differential privacy: each member can learn much about the others; see README, Limits"


def _budget(plan: RoundPlan, folder: RunFolder, completed: int, resume: bool) -> Budget | None:
    """What has been released so far; None where no epsilon can be stated.

    Raises:
        RunError: a resumed run does not say what its completed rounds have released.
    """
    if plan.privacy is None:
        return None
    budget = Budget(plan.privacy, plan.noise.budget)
    state = folder.load_privacy() if resume else None
    if state is not None:
        budget.restore(state)
    if budget.last < completed:
        raise RunError(f"{folder.path}: {completed} rounds are completed, but only {budget.last} are accounted for")
    return budget


def _adapted(plan: RoundPlan, config: Config, clip_norm: float | None, within: float | None) -> float | None:
    """The clip bound of the next round: the same, or what the released count makes of it."""
    if clip_norm is None or within is None:
        return clip_norm
    quantile, expected = config.privacy.quantile, config.federation.cohort
    return next_clip_norm(clip_norm, within, expected, quantile.target, quantile.learning_rate, plan.clip_limits())


def _reason(error: SafeGNNError) -> str:
    """Why a client has no upload, for the record, which names client and round itself."""
    return f"{error.phase}: {error.reason}" if isinstance(error, ProtocolError) else str(error)


def _auditor(plan: RoundPlan) -> Encoder | None:
    """What the audit takes from clients; None where noise hides what it would compare."""
    if plan.noise.multiplier > 0:
        return None
    return plain_encoder if plan.engine == "plaintext" else AuditEncoder(plan.vectors)


def _audit(
    plan: RoundPlan, round: int, before: np.ndarray, after: Sequence[np.ndarray], audits: Sequence[PlainUpload]
) -> tuple[float | None, float | None]:
    """The largest difference from float64 aggregation of the same uploads, and its bound; None without an audit.

    Args:
        after: the released model, or that of every client that took part; none where nothing is aggregated.
        audits: the plaintext of the uploads that were aggregated.

    Raises:
        ProtocolError: the bound is exceeded; nothing of the round has been recorded yet.
    """
    if not audits or not after:
        return None, None
    if plan.rule.personal:
        expected: Sequence[np.ndarray] = list(float64_personal(before, plan.rule, audits)[1])
    else:
        expected = [float64_aggregate(before, plan.rule, plan.clip_norm, audits)]
    largest = max(float(np.abs(upload.delta).max(initial=0.0)) for upload in audits)
    bound = plan.error_bound(len(audits), largest)
    difference = max(float(np.abs(own - exact).max()) for own, exact in zip(after, expected, strict=True))
    if not difference <= bound:
        reason = f"the model differs from float64 by {difference:.3g}, more than the bound {bound:.3g}"
        raise ProtocolError(f"engine {plan.engine}", "audit", round, reason)
    return difference, bound
