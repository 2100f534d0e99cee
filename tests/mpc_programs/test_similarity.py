"""FED-PUB's weights on float64 and on shares against the formula, within the error that is stated."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mpc_programs.arithmetic import CLAMP
from mpc_programs.lockstep import run_locally
from mpc_programs.similarity import Similarity
from orchestrator.coordinator.plaintext import Float64
from orchestrator.server.aggregation import demand
from tests.support import compute, share

ULP = 2.0**-32


def oracle(embeddings, tau):
    """Row by row, as the paper has it; a client is as similar to itself as can be."""
    rows = []
    for i, own in enumerate(embeddings):
        similarities = [1.0 if i == j else own @ other for j, other in enumerate(embeddings)]
        e = np.exp(tau * np.array(similarities))
        rows.append(e / e.sum())
    return np.array(rows)


def on_float64(embeddings, tau):
    q, m = embeddings.shape
    return run_locally(Similarity(q, m, tau).weights(Float64(), embeddings.T.ravel())).reshape(q, q)


def on_shares(embeddings, tau):
    q, m = embeddings.shape
    rule = Similarity(q, m, tau)
    secret, rounds = compute(lambda ops, x: rule.weights(ops, x), share(embeddings.T.ravel()))
    return secret.reshape(q, q), rounds, rule.error_ulp * ULP


def unit(rows):
    """Rows on the unit sphere, or zero."""
    norms = np.linalg.norm(rows, axis=1, keepdims=True)
    return rows / np.where(norms > 0, norms, 1.0)


def random_embeddings(q, m):
    return unit(np.random.default_rng(q + m).normal(size=(q, m)))


@st.composite
def embeddings(draw):
    """Any, with identical, opposite and zero ones among them."""
    q, m = draw(st.integers(1, 6)), draw(st.integers(1, 5))
    coordinates = st.floats(-1, 1).map(lambda x: round(x, 3))
    base = unit(np.array(draw(st.lists(coordinates, min_size=m, max_size=m)))[None])[0]
    kinds = draw(st.lists(st.sampled_from(["same", "opposite", "zero", "other"]), min_size=q, max_size=q))
    others = np.array(draw(st.lists(coordinates, min_size=q * m, max_size=q * m))).reshape(q, m)
    made = {"same": base, "opposite": -base, "zero": 0 * base}
    return unit(np.array([made.get(kind, others[k]) for k, kind in enumerate(kinds)]))


@settings(max_examples=40, deadline=None)
@given(embeddings(), st.sampled_from([0.1, 1.0, 3.0, 10.0, 12.0]))
def test_weights_are_the_formulas(embeddings, tau):
    plain, exact = on_float64(embeddings, tau), oracle(embeddings, tau)
    assert np.abs(plain - exact).max() < 2.0**-28
    secret, _, error = on_shares(embeddings, tau)
    assert np.abs(secret - plain).sum(axis=1).max() <= error


@pytest.mark.parametrize("tau", [1.0, 3.0, 10.0])
@pytest.mark.parametrize("q", [1, 2, 3, 5, 10, 17, 30])
def test_a_rows_errors_are_within_the_bound_for_cohorts_of_any_size(q, tau):
    alike = np.ones((q, 16)) / 4
    opposite = alike * np.where(np.arange(q) % 2, -1, 1)[:, None]
    for embeddings in (random_embeddings(q, 16), alike, opposite, 0 * alike):
        plain = on_float64(embeddings, tau)
        secret, rounds, error = on_shares(embeddings, tau)
        assert np.abs(secret - plain).sum(axis=1).max() <= error < 2.0**-17
        np.testing.assert_allclose(plain, oracle(embeddings, tau), atol=2.0**-28)
        assert rounds == 0 if q == 1 else rounds <= 24


def test_row_i_is_client_i():
    """Its weights sum to one, its own is the largest, and nobody weighs more than who is like it."""
    embeddings = unit(np.array([[1.0, 0.0], [1.0, 0.1], [-1.0, 0.5]]))
    weights = on_float64(embeddings, 3.0)
    np.testing.assert_allclose(weights.sum(axis=1), 1.0, atol=1e-9)
    assert (weights.argmax(axis=1) == [0, 1, 2]).all()
    assert weights[2, 2] > 0.9 and weights[0, 1] > 0.4 and weights[2, 0] < weights[0, 0]
    assert not np.allclose(weights, weights.T)


def test_what_a_round_takes_is_a_triangle_of_inner_products_exponentials_and_one_division():
    from mpc_programs.rules import RoundParameters

    def triples(q, m):
        return demand(RoundParameters("fedpub", q, embedding=m), 10).triples

    for q in (2, 3, 10, 30):
        assert triples(q, 9) - triples(q, 8) == q * (q - 1) // 2
    assert triples(1, 8) == triples(0, 8) == 0


def test_all_scales_that_settings_allow_are_in_reach_of_the_exponential():
    from orchestrator.methods.settings import FedPubSettings

    [limit] = [item.le for item in FedPubSettings.model_fields["similarity"].metadata if hasattr(item, "le")]
    assert 2 * limit == CLAMP
