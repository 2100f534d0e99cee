"""The plaintext reference against formulas written down independently, and its noise."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.special import softmax

from mpc_programs.rules import RoundParameters
from orchestrator.agreement.round_plan import Terms
from orchestrator.client.plain import plain_encoder
from orchestrator.coordinator.audit import float64_aggregate
from orchestrator.coordinator.plaintext import PlaintextEngine
from orchestrator.errors import CohortError, ConfigError, RangeError
from orchestrator.methods.base import LocalUpdate
from orchestrator.mpc.fixed_point import VectorFormat
from orchestrator.wire.message import Place
from tests.support import engine_of


def make_uploads(cohort: int, size: int = 20, seed: int = 0) -> list[LocalUpdate]:
    rng = np.random.default_rng(seed)
    uploads = []
    for _ in range(cohort):
        delta = rng.normal(size=size)
        scores = {"balance": rng.uniform(), "fairness": rng.uniform(0, 2)}
        uploads.append(LocalUpdate(delta, float(np.linalg.norm(delta)), scores))
    return uploads


def run(engine: PlaintextEngine, model, uploads, round: int = 1):
    for slot, upload in reversed(list(enumerate(uploads))):
        engine.submit(round, slot, 10 + slot, upload)
    return engine.aggregate(round, [10 + slot for slot in range(len(uploads))])


def f2gnn_weights(uploads, lam: float, tau: float) -> np.ndarray:
    """SaFeGNN, Algorithm 1, lines 11-15."""
    balance = softmax([upload.scores["balance"] for upload in uploads])
    fairness = np.exp(softmax([upload.scores["fairness"] for upload in uploads]))
    return softmax((lam * balance + fairness) / tau)


@pytest.mark.parametrize("cohort", [1, 2, 3, 5, 30])
@pytest.mark.parametrize("clip_norm", [None, 1.5, 100.0])
@pytest.mark.parametrize("rule", ["f2gnn", "fedavg"])
def test_the_released_model_is_the_papers(cohort, clip_norm, rule):
    uploads, model = make_uploads(cohort), np.linspace(-1, 1, 20)
    ratio_max = None if clip_norm is None else 64 / clip_norm
    parameters = RoundParameters(rule, cohort, lam=8.0, tau=4.0, ratio_max=ratio_max)
    weights = f2gnn_weights(uploads, 8.0, 4.0) if rule == "f2gnn" else np.full(cohort, 1 / cohort)
    clip = [1.0 if clip_norm is None else min(1.0, clip_norm / upload.norm) for upload in uploads]
    expected = model - sum(w * c * upload.delta for w, c, upload in zip(weights, clip, uploads, strict=True))
    np.testing.assert_allclose(float64_aggregate(model, parameters, clip_norm, uploads), expected, rtol=0, atol=1e-9)
    engine = engine_of(PlaintextEngine, parameters, clip_norm=clip_norm)
    engine.start(model)
    np.testing.assert_allclose(run(engine, model, uploads).parameters, expected, rtol=0, atol=1e-9)


@given(st.integers(1, 8), st.integers(0, 10**6), st.sampled_from(["f2gnn", "fedavg"]))
def test_equal_updates_move_the_model_by_that_update(cohort, seed, rule):
    uploads = make_uploads(cohort, seed=seed)
    same = [LocalUpdate(uploads[0].delta, uploads[0].norm, upload.scores) for upload in uploads]
    released = float64_aggregate(np.ones(20), RoundParameters(rule, cohort), None, same)
    np.testing.assert_allclose(released, 1 - uploads[0].delta, rtol=0, atol=1e-9)


@given(st.permutations(range(5)), st.sampled_from([None, 0.5]))
def test_the_order_of_the_slots_does_not_matter(order, clip_norm):
    uploads = make_uploads(5)
    parameters = RoundParameters("f2gnn", 5, ratio_max=None if clip_norm is None else 64 / clip_norm)
    model = np.zeros(20)
    np.testing.assert_allclose(
        float64_aggregate(model, parameters, clip_norm, [uploads[k] for k in order]),
        float64_aggregate(model, parameters, clip_norm, uploads),
        rtol=0,
        atol=1e-12,
    )


@given(st.integers(1, 6), st.integers(0, 10**6), st.floats(1e-3, 10))
def test_a_clipped_step_is_no_longer_than_the_bound(cohort, seed, clip_norm):
    uploads = make_uploads(cohort, seed=seed)
    parameters = RoundParameters("f2gnn", cohort, ratio_max=64 / clip_norm)
    assert np.linalg.norm(float64_aggregate(np.zeros(20), parameters, clip_norm, uploads)) <= clip_norm * (1 + 1e-9)


def test_rounds_may_have_any_size_and_terms_of_their_own():
    parameters, uploads = RoundParameters("fedavg", 2, ratio_max=64.0), make_uploads(3)
    engine = engine_of(PlaintextEngine, parameters, clip_norm=1.0)
    engine.start(np.zeros(20))
    for size, clip_norm in ((3, 0.5), (0, 0.5), (1, None)):
        before = engine._model
        engine.prepare(1, size, Terms(clip_norm))
        released = run(engine, None, uploads[:size]).parameters
        clip = [1.0 if clip_norm is None else clip_norm / upload.norm for upload in uploads[:size]]
        moved = sum(c * upload.delta for c, upload in zip(clip, uploads, strict=False)) / max(1, size)
        np.testing.assert_allclose(released, before - moved, rtol=0, atol=1e-9)
    engine.prepare(2, 3)
    before = engine._model
    moved = sum(upload.delta / upload.norm for upload in uploads) / 3
    np.testing.assert_allclose(run(engine, None, uploads).parameters, before - moved, rtol=0, atol=1e-9)


def test_dither_is_simulated_where_shares_are_and_nowhere_else():
    """The sum of two uniform ones of the whole range: a triangle, whose standard deviation is 1/sqrt(6) of its half."""
    vectors, d = VectorFormat(25, 32, 6), 20_000
    upload = LocalUpdate(np.full(d, 0.25), 1.0, {})
    for noise_stddev in (1.0, 0.0):
        engine = engine_of(PlaintextEngine, RoundParameters("fedavg", 1), clip_norm=1.0, noise_stddev=noise_stddev)
        engine.prepare(1, 1, Terms(1.0))  # a round without the noise that would hide the dither
        engine.start(np.zeros(d))
        released = run(engine, None, [upload]).parameters + 0.25
        if not noise_stddev:
            assert np.abs(released).max() < 1e-12 < vectors.dither_bound  # what clipping rounds
            continue
        assert np.abs(released).max() <= vectors.dither_bound
        assert abs(released.std() / (vectors.dither_bound / 6**0.5) - 1) < 0.03
        assert abs(released.mean()) < 5 * vectors.dither_bound / (6 * d) ** 0.5


def test_rounds_build_on_each_other_and_the_given_model_is_not_touched():
    parameters, model = RoundParameters("fedavg", 2), np.zeros(20)
    engine = engine_of(PlaintextEngine, parameters)
    engine.start(model)
    uploads = make_uploads(2)
    mean = (uploads[0].delta + uploads[1].delta) / 2
    first = run(engine, model, uploads)
    first.parameters[:] = np.nan  # what was handed out is no longer the engine's
    second = run(engine, model, uploads, 2)
    np.testing.assert_allclose(second.parameters, -2 * mean, atol=1e-12)
    assert not model.any()
    assert (second.cost.upload_bytes, second.cost.download_bytes, second.cost.online_bytes) == (160, 160, (0, 0))


def make_personal(cohort: int, seed: int = 0) -> list[LocalUpdate]:
    rng = np.random.default_rng(seed)
    embeddings = rng.normal(size=(cohort, 4))
    embeddings /= np.linalg.norm(embeddings, axis=1, keepdims=True)
    return [LocalUpdate(rng.normal(size=20), 1.0, {"embedding": embedding}) for embedding in embeddings]


@pytest.mark.parametrize("cohort", [1, 2, 3, 10, 30])
def test_a_personal_rule_gives_every_client_its_own_weighted_sum(cohort):
    """Of the clients' models, by the paper's formula: alpha_ij is a softmax over tau cos(h_i, h_j)."""
    uploads, start = make_personal(cohort), np.linspace(-1, 1, 20)
    engine = engine_of(PlaintextEngine, RoundParameters("fedpub", cohort, embedding=4, similarity=2.5))
    engine.start(start)
    embeddings = np.array([upload.scores["embedding"] for upload in uploads])
    trained = start - np.array([upload.delta for upload in uploads])
    expected = softmax(2.5 * embeddings @ embeddings.T, axis=1)
    for number in (1, 2):  # the public model does not move
        result = run(engine, start, uploads, number)
        assert result.parameters is None and len(result.answers) == cohort
        np.testing.assert_allclose(result.weights, expected, rtol=0, atol=1e-8)
        for slot, answer in result.answers.items():
            own = engine.decoder(answer, None, Place(number, slot, 10 + slot))
            np.testing.assert_allclose(own, expected[slot] @ trained, rtol=0, atol=1e-7)
        assert (result.cost.upload_bytes, result.cost.download_bytes) == (160, 160)


def test_a_personal_round_may_have_any_size_and_no_clients():
    engine = engine_of(PlaintextEngine, RoundParameters("fedpub", 3, embedding=4))
    engine.start(np.zeros(20))
    for number, size in enumerate((2, 0, 4), 1):
        engine.prepare(number, size)
        result = run(engine, None, make_personal(size), number)
        assert result.parameters is None
        assert (len(result.answers), result.weights.shape) == (size, (size, size))
        assert result.cost.download_bytes == (160 if size else 0)


@pytest.mark.parametrize("terms", [Terms(1.0), Terms(1.0, 0.1), Terms(None, 0.0, 0.0)])
def test_a_personal_rule_neither_clips_nor_adds_noise(terms):
    parameters = RoundParameters("fedpub", 3, embedding=4)
    with pytest.raises(ConfigError, match=r"fedpub .* without clipping or noise"):
        engine_of(PlaintextEngine, parameters).prepare(1, 3, terms)
    with pytest.raises(ConfigError, match=r"fedpub .* without clipping or noise"):
        engine_of(
            PlaintextEngine,
            parameters,
            clip_norm=terms.clip_norm,
            noise_stddev=terms.noise_stddev,
            count_stddev=terms.count_stddev,
        )


def test_an_embedding_that_is_not_finite_is_refused_with_its_client():
    with pytest.raises(RangeError, match="round 3, client 7"):
        plain_encoder(LocalUpdate(np.zeros(3), 0.0, {"embedding": np.array([0.0, np.nan])}), Place(3, 0, 7))


def test_noise_has_the_variance_of_both_servers_and_is_not_repeated():
    parameters, size = RoundParameters("fedavg", 1, ratio_max=64 / 0.5), 40_000
    released = []
    for _ in range(2):
        with engine_of(PlaintextEngine, parameters, clip_norm=0.5, noise_stddev=0.3) as engine:
            engine.start(np.zeros(size))
            released.append(run(engine, None, [LocalUpdate(np.zeros(size), 0.0, {})]).parameters)
    stddev = 2**0.5 * 0.3
    for noise in released:
        assert abs(noise.mean()) < 5 * stddev / size**0.5
        assert abs(noise.std() / stddev - 1) < 5 / (2 * size) ** 0.5
    assert abs(np.corrcoef(*released)[0, 1]) < 5 / size**0.5


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("where", ["delta", "norm", "score"])
def test_an_update_that_is_not_finite_is_refused_with_its_client(value, where):
    arguments = {"delta": np.zeros(3), "norm": 0.0, "scores": {"balance": 0.5}}
    arguments |= {
        "delta": {"delta": np.array([0, value, 0])},
        "norm": {"norm": value},
        "score": {"scores": {"b": value}},
    }[where]
    with pytest.raises(RangeError, match="round 3, client 7"):
        plain_encoder(LocalUpdate(**arguments), Place(3, 0, 7))


def test_a_finite_update_passes_unchanged():
    upload = plain_encoder(LocalUpdate(np.arange(3.0), 2.5, {"balance": 0.5}), Place(1, 0, 4))
    np.testing.assert_array_equal(upload.delta, [0, 1, 2])
    assert (upload.norm, upload.scores) == (2.5, {"balance": 0.5})


@pytest.mark.parametrize(
    "bad",
    [
        None,
        (b"envelope", b"envelope"),
        LocalUpdate(np.zeros(19), 0.0, {"balance": 0.5, "fairness": 0.5}),
        LocalUpdate(np.full(20, np.nan), 1.0, {"balance": 0.5, "fairness": 0.5}),
        LocalUpdate(np.zeros(20), np.inf, {"balance": 0.5, "fairness": 0.5}),
        LocalUpdate(np.zeros(20), 1.0, {"balance": 0.5}),
        LocalUpdate(np.zeros(20), 1.0, {"balance": 0.5, "fairness": np.zeros(2)}),
        LocalUpdate(np.zeros(20), 1.0, {"balance": 0.5, "fairness": np.nan}),
    ],
)
def test_what_is_no_update_costs_its_client_alone(bad):
    engine, uploads, model = engine_of(PlaintextEngine, RoundParameters("f2gnn", 3)), make_uploads(3), np.zeros(20)
    engine.start(model)
    result = run(engine, model, [uploads[0], bad, uploads[2]])
    assert list(result.left_out) == [1] and "no update of this model" in result.left_out[1]
    expected = float64_aggregate(model, RoundParameters("f2gnn", 3), None, [uploads[0], uploads[2]])
    np.testing.assert_array_equal(result.parameters, expected)
    assert run(engine, model, uploads, 2).left_out == {}


def test_too_few_are_an_error_and_the_next_round_works():
    engine, uploads = engine_of(PlaintextEngine, RoundParameters("f2gnn", 3), min_cohort=2), make_uploads(3)
    engine.start(np.zeros(20))
    with pytest.raises(CohortError, match=r"clients 11, 12: .* no update .*; 1 of 3 clients remain, .* = 2"):
        run(engine, None, [uploads[0], None, None])
    assert run(engine, None, uploads, 2).left_out == {}
    engine.submit(3, 0, 10, uploads[0])
    with pytest.raises(CohortError, match="clients 11, 12: nothing arrived"):
        engine.aggregate(3, [10, 11, 12])


def test_a_personal_round_goes_on_with_fewer():
    rng = np.random.default_rng(3)
    embeddings = rng.normal(size=(4, 3))
    embeddings /= np.linalg.norm(embeddings, axis=1, keepdims=True)
    uploads = [LocalUpdate(rng.normal(size=5), 1.0, {"embedding": embedding}) for embedding in embeddings]
    engine = engine_of(PlaintextEngine, RoundParameters("fedpub", 4, embedding=3, similarity=2.5))
    engine.start(np.zeros(5))
    result, rest = run(engine, None, [uploads[0], None, *uploads[2:]]), [0, 2, 3]
    expected = softmax(2.5 * embeddings[rest] @ embeddings[rest].T, axis=1)
    np.testing.assert_allclose(result.weights, expected, rtol=0, atol=1e-8)
    assert list(result.answers) == rest and list(result.left_out) == [1]
    for row, slot in enumerate(rest):
        mean = -sum(expected[row, k] * uploads[other].delta for k, other in enumerate(rest))
        np.testing.assert_allclose(result.answers[slot], mean, rtol=0, atol=1e-7)
