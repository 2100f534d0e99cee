from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy.spatial.distance import jensenshannon
from scipy.special import expit, softmax

from orchestrator.methods.fairness import gap_coefficients, gaps, js_distance_over_nodes, js_divergence
from orchestrator.seeding import seeded_generator

PENALTIES = ("gaps", "broadcast")
DENOMINATORS = ("positives", "group")


@st.composite
def predictions(draw, min_size=0):
    n = draw(st.integers(min_size, 30))
    bits = st.lists(st.integers(0, 1), min_size=n, max_size=n)
    p = draw(st.lists(st.floats(0, 1), min_size=n, max_size=n))
    return np.array(p), np.array(draw(bits), np.int64), np.array(draw(bits), np.int64)


def compute(p, y, s, penalty="gaps", denominator="positives"):
    y, s = torch.from_numpy(y), torch.from_numpy(s)
    return gaps(torch.from_numpy(p), gap_coefficients(y, s, penalty, denominator)).numpy()


def oracle_gaps(p, y, s, denominator):
    """The definitions, node set by node set."""
    one, zero = s == 1, s == 0
    parity = abs(p[one].mean() - p[zero].mean()) if one.any() and zero.any() else 0.0
    hit_one, hit_zero = one & (y == 1), zero & (y == 1)
    if not (hit_one.any() and hit_zero.any()):
        return parity, 0.0
    if denominator == "positives":
        return parity, abs(p[hit_one].mean() - p[hit_zero].mean())
    return parity, abs(p[hit_one].sum() / one.sum() - p[hit_zero].sum() / zero.sum())


def oracle_broadcast(p, y, s, denominator):
    """The reference code's products of (n, 1) probabilities with (n,) masks, carried out as n x n arrays."""
    column = p[:, None]
    rates = {"parity": [], "opportunity": []}
    for mask in (s == 1, s == 0):
        mask = mask.astype(np.float64)
        rates["parity"].append((column * mask).sum() / (mask.sum() + 1e-5))
        size = mask.sum() if denominator == "group" else (mask * y).sum()
        rates["opportunity"].append(((column * y) * mask).sum() / (size + 1e-5))
    return tuple(abs(a - b) for a, b in rates.values())


@pytest.mark.parametrize("denominator", DENOMINATORS)
@given(data=predictions())
def test_gaps_equal_the_definitions(data, denominator):
    np.testing.assert_allclose(
        compute(*data, "gaps", denominator), oracle_gaps(*data, denominator), rtol=1e-9, atol=1e-12
    )


@pytest.mark.parametrize("denominator", DENOMINATORS)
@given(data=predictions(min_size=1))
def test_broadcast_equals_the_faulty_products(data, denominator):
    np.testing.assert_allclose(
        compute(*data, "broadcast", denominator), oracle_broadcast(*data, denominator), rtol=1e-7, atol=1e-9
    )


@pytest.mark.parametrize("penalty", PENALTIES)
@pytest.mark.parametrize("denominator", DENOMINATORS)
@given(data=predictions())
def test_gaps_do_not_change_when_the_groups_swap_names(data, penalty, denominator):
    p, y, s = data
    np.testing.assert_allclose(
        compute(p, y, s, penalty, denominator), compute(p, y, 1 - s, penalty, denominator), atol=1e-12
    )


@given(data=predictions())
def test_gaps_are_rates(data):
    values = compute(*data)
    assert ((values >= 0) & (values <= 1 + 1e-12)).all()


def test_broadcast_measures_base_rates_times_the_sum_of_probabilities():
    rng = seeded_generator(0, "broadcast")
    n = 200
    p, y, s = rng.uniform(size=n), rng.integers(0, 2, n), rng.integers(0, 2, n)
    parity, opportunity = compute(p, y, s, "broadcast", "group")
    assert parity < 1e-4
    assert opportunity == pytest.approx(p.sum() * abs(y[s == 1].mean() - y[s == 0].mean()), rel=1e-4)
    shuffled = compute(rng.permutation(p), y, s, "broadcast", "group")
    np.testing.assert_allclose(shuffled, [parity, opportunity])  # blind to whose probabilities they are
    assert compute(p, y, np.ones(n, np.int64), "broadcast", "group")[0] == pytest.approx(p.sum(), rel=1e-4)


def test_group_denominator_changes_the_eo_gap_only():
    y, s = np.array([1, 0, 0, 1, 1, 0]), np.array([1, 1, 1, 0, 0, 0])
    p = np.array([0.9, 0.5, 0.1, 0.4, 0.2, 0.3])
    np.testing.assert_allclose(compute(p, y, s, "gaps", "positives"), [0.2, 0.6])
    np.testing.assert_allclose(compute(p, y, s, "gaps", "group"), [0.2, 0.1])


def test_gradient_has_the_nodes_axis_and_matches_finite_differences():
    y, s = torch.tensor([1, 0, 0, 1, 1, 0]), torch.tensor([1, 1, 1, 0, 0, 0])
    coefficients = gap_coefficients(y, s)
    logits = torch.tensor([0.9, 0.5, -0.1, 0.4, -0.2, 0.3], dtype=torch.float64, requires_grad=True)

    def penalty(z):
        return gaps(torch.sigmoid(z / 4), coefficients).sum()

    penalty(logits).backward()
    assert logits.grad.shape == (6,) and (logits.grad != 0).all()
    assert torch.autograd.gradcheck(penalty, (logits,))
    # A higher score for the favoured group widens the gap, for the other group it narrows it.
    assert (logits.grad[:3] > 0).all() and (logits.grad[3:] < 0).all()


@pytest.mark.parametrize(
    ("y", "s", "zero"),
    [([1, 0, 1], [0, 0, 0], (0, 1)), ([1, 0, 1], [1, 1, 1], (0, 1)), ([1, 1, 0], [0, 0, 1], (1,)), ([1], [0], (0, 1))],
)
@pytest.mark.parametrize("denominator", DENOMINATORS)
def test_empty_groups_have_no_gap_and_no_gradient(y, s, zero, denominator):
    coefficients = gap_coefficients(torch.tensor(y), torch.tensor(s), "gaps", denominator)
    for row in zero:
        p = torch.full((len(y),), 0.7, dtype=torch.float64, requires_grad=True)
        gap = gaps(p, coefficients)[row]
        gap.backward()
        assert gap == 0 and (p.grad == 0).all()


logit_pairs = st.integers(0, 12).flatmap(
    lambda n: st.tuples(*[st.lists(st.floats(-1e6, 1e6), min_size=n, max_size=n).map(np.array)] * 2)
)
temperatures = st.sampled_from([1e-3, 1e-2, 1.0, 4.0])


@given(logit_pairs, temperatures)
def test_js_is_symmetric_finite_and_in_range(pair, temperature):
    a, b = pair
    value = js_divergence(a, b, temperature)
    assert 0 <= value <= 1
    assert value == js_divergence(b, a, temperature)
    if len(a):
        assert js_divergence(a, a, temperature) == 0
    else:
        assert value == 1


@given(st.floats(-5, 5), st.floats(0.01, 5))
def test_js_of_different_predictions_is_positive(logit, shift):
    assert js_divergence(np.array([logit]), np.array([logit + shift]), 1.0) > 0


@given(logit_pairs.filter(lambda pair: len(pair[0]) > 0))
def test_js_equals_scipy_node_by_node(pair):
    a, b = (np.clip(x, -30, 30) for x in pair)
    nodes = [
        jensenshannon([expit(-x), expit(x)], [expit(-y), expit(y)], base=2) ** 2 for x, y in zip(a, b, strict=True)
    ]
    assert js_divergence(a, b, 1.0) == pytest.approx(np.nan_to_num(nodes).mean(), abs=1e-9)


@pytest.mark.parametrize(("a", "b"), [(40.0, 45.0), (-3.0, 800.0), (0.1, 0.2)])
def test_js_is_as_precise_for_certain_positives_as_for_certain_negatives(a, b):
    value = js_divergence(np.array([a]), np.array([b]), 1.0)
    assert value > 0
    assert value == pytest.approx(js_divergence(np.array([-a]), np.array([-b]), 1.0), rel=1e-6)


def test_js_of_opposite_certainties_is_one():
    assert js_divergence(np.array([1e6, -1e6]), np.array([-1e6, 1e6]), 1e-3) == 1.0


@given(logit_pairs, temperatures)
def test_js_distance_over_nodes_is_in_range(pair, temperature):
    a, b = pair
    value = js_distance_over_nodes(a, b, temperature)
    assert value == 1 if not len(a) else 0 <= value <= 0.8326


def test_js_distance_over_nodes_equals_the_reference_computation():
    rng = seeded_generator(0, "distance")
    a, b = rng.normal(size=9), rng.normal(size=9)
    for temperature in (0.5, 4.0):
        expected = jensenshannon(softmax((a > 0) / temperature), softmax((b > 0) / temperature))
        assert js_distance_over_nodes(a, b, temperature) == pytest.approx(expected)


def test_js_distance_over_nodes_ignores_what_the_reference_ignores():
    up, down = np.full(5, 2.0), np.full(5, -2.0)
    assert js_distance_over_nodes(up, down, 1e-3) == 0  # constant predictions are the same distribution over nodes
    assert js_distance_over_nodes(up[:1], down[:1], 1e-3) == 0
    disjoint = np.array([1.0, -1.0]), np.array([-1.0, 1.0])
    assert js_distance_over_nodes(*disjoint, 1e-3) == pytest.approx(np.sqrt(np.log(2)))
