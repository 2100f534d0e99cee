"""The rules on float64 and on shares against an independent NumPy oracle."""

import numpy as np
import pytest

from mpc_programs.lockstep import run_locally
from mpc_programs.rules import RULES, RoundParameters, factors, score_names
from orchestrator.mpc.fixed_point import clip_error
from orchestrator.mpc.float64 import Float64
from orchestrator.server.aggregation import demand, secret_factors
from tests.support import compute, share


def oracle(parameters, scores, ratio):
    def softmax(x):
        e = np.exp(x - x.max())
        return e / e.sum()

    q = parameters.cohort
    weights = np.full(q, 1 / q)
    if parameters.rule == "f2gnn":
        inner = parameters.lam * softmax(scores["balance"]) + np.exp(softmax(scores["fairness"]))
        weights = softmax(inner / parameters.tau)
    if parameters.rule == "softmax" and parameters.expected is None:
        weights = softmax(scores["score"])
    elif parameters.rule == "softmax":
        weights = np.exp(scores["score"] - parameters.fairness_max / 2) / parameters.expected
    return weights if ratio is None else weights * np.minimum(1, 1 / np.maximum(ratio, 1e-300))


CASES = [
    RoundParameters("f2gnn", q, lam, tau, cap, ratio_max)
    for q in (1, 2, 3, 5, 30)
    for lam, tau, cap in ((0.5, 4.0, 2.0), (8.0, 4.0, 2.0), (0.5, 4.0, 1e5), (64.0, 1.0, 1e5), (64.0, 0.07, 2.0))
    for ratio_max in (None, 6.4)
]
CASES += [RoundParameters("fedavg", 3), RoundParameters("fedavg", 3, ratio_max=1000.0)]
CASES += [
    RoundParameters("softmax", q, fairness_max=cap, ratio_max=ratio_max, expected=expected)
    for q, cap, expected in (
        (1, 2.0, None),
        (3, 2.0, None),
        (30, 4.0, None),
        (5, 20.0, None),
        (5, 8.0, 3),
        (2, 1.0, 30),
    )
    for ratio_max in (None, 6.4)
]


def scores_of(parameters, kind):
    rng = np.random.default_rng(parameters.cohort)
    q, cap = parameters.cohort, parameters.fairness_max
    fairness = {"spread": rng.random(q) * cap, "equal": np.full(q, cap), "extreme": np.where(np.arange(q), 0, cap)}
    own = fairness[kind].astype(float)
    scores = {"f2gnn": {"balance": rng.random(q), "fairness": own}, "fedavg": {}, "softmax": {"score": own}}[
        parameters.rule
    ]
    top = parameters.ratio_max
    ratio = None if top is None else np.array([0.0, top, 1.0, 0.3 * top])[np.arange(q) % 4]
    return scores, ratio


@pytest.mark.parametrize("kind", ["spread", "equal", "extreme"])
@pytest.mark.parametrize("parameters", CASES, ids=str)
def test_factors_agree(parameters, kind):
    scores, ratio = scores_of(parameters, kind)
    expected = oracle(parameters, scores, ratio)
    plain = run_locally(factors(Float64(), parameters, scores, ratio))
    assert np.abs(plain - expected).max() < 2.0**-28

    columns = [*scores.values()] if ratio is None else [*scores.values(), ratio]
    k = len(score_names(parameters))
    assert len(columns) == k
    stacked = np.stack(columns, axis=1).ravel() if columns else np.zeros(0)

    def program(ops, x):
        return secret_factors(ops, parameters, [x.values[k * i : k * i + k] for i in range(parameters.cohort)])

    secret, rounds = compute(program, share(stacked))
    q = parameters.cohort
    total = max(1.0, float(np.abs(oracle(parameters, scores, None)).sum()))
    bound = RULES[parameters.rule].error_ulp(parameters) * 2.0**-32 + (0.0 if ratio is None else clip_error(q, total))
    assert np.abs(secret - expected).sum() < bound
    wide = parameters.fairness_max > 4 and parameters.lam > 8
    assert rounds <= (100 if wide else 64)


def test_the_demand_is_what_a_round_takes():
    """A batch of exactly the counted size serves; a smaller one runs out."""
    parameters = CASES[0]
    assert demand(parameters, 10).triples > 0
    clipped = RoundParameters("fedavg", 3, ratio_max=8.0)
    assert demand(clipped, 10).bits == 3 * 3  # 3 clients, thresholds 1, 2, 4
