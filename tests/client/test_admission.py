"""What cannot be encoded is refused without noise, and never with it."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mpc_programs.rules import RoundParameters
from orchestrator.client.admission import admit, begin_run
from orchestrator.client.plain import SimulatingEncoder
from orchestrator.errors import RangeError
from orchestrator.methods.base import LocalUpdate
from orchestrator.mpc.fixed_point import VectorFormat
from orchestrator.wire.message import Place

FORMAT = VectorFormat(25, 32, 6)
PARAMETERS = RoundParameters("f2gnn", 3, fairness_max=2.0)
PLACE = Place(3, 0, 7)
GOOD = {"balance": 0.5, "fairness": 1.5}


def admitted(delta, scores, confine):
    return admit(FORMAT, PARAMETERS, LocalUpdate(np.array(delta), 0.0, scores), PLACE, confine=confine)


@pytest.fixture(autouse=True)
def _fresh_run():
    begin_run()


BAD = [
    ([0.1, np.nan], GOOD, [0.0, 0.0], GOOD, "the update holds NaN"),
    ([-np.inf, 0.1], GOOD, [0.0, 0.0], GOOD, "the update holds NaN"),
    ([0.0, 100.0], GOOD, [0.0, 64.0], GOOD, "norm is not below"),
    ([0.1, 0.2], GOOD | {"balance": 1.5}, [0.1, 0.2], GOOD | {"balance": 1.0}, "balance score lies outside"),
    ([0.1, 0.2], GOOD | {"fairness": -1.0}, [0.1, 0.2], GOOD | {"fairness": 0.0}, "fairness score lies outside"),
    ([0.1, 0.2], GOOD | {"fairness": np.inf}, [0.1, 0.2], GOOD | {"fairness": 2.0}, "fairness score lies outside"),
    ([0.1, 0.2], GOOD | {"balance": np.nan}, [0.1, 0.2], GOOD | {"balance": 0.0}, "balance score lies outside"),
]


@pytest.mark.parametrize(("delta", "scores", "confined", "within", "text"), BAD)
def test_without_noise_it_is_refused_and_with_noise_brought_into_range(delta, scores, confined, within, text, caplog):
    with pytest.raises(RangeError, match=f"round 3, client 7: .*{text}"):
        admitted(delta, scores, confine=False)
    assert not caplog.records
    update, values = admitted(delta, scores, confine=True)
    np.testing.assert_allclose(FORMAT.decode_update(update), confined, atol=1e-4)
    assert values == within and FORMAT.norm(update) < FORMAT.limit
    assert "round 3, client 7" in caplog.text and text in caplog.text  # the client's own log


def test_a_run_warns_once_of_each_kind_of_fault(caplog):
    for delta, scores, *_ in 20 * BAD:
        admitted(delta, scores, confine=True)
    first, second = (record.getMessage() for record in caplog.records)
    assert "holds NaN" in first and "balance score" in second
    begin_run()
    admitted([0.0, 100.0], GOOD, confine=True)
    assert "norm is not below" in caplog.records[2].getMessage()


@pytest.mark.parametrize(
    ("rule", "delta", "told"),
    [("f2gnn", [0.0, 100.0], True), ("f2gnn", [0.0, np.inf], False), ("fedavg", [0.0, 100.0], False)],
)
def test_why_f2gnns_norms_leave_the_range_is_said_of_norms_alone(rule, delta, told, caplog):
    admit(FORMAT, RoundParameters(rule, 3), LocalUpdate(np.array(delta), 0.0, GOOD), PLACE, confine=True)
    assert ("method.stateful" in caplog.text) == told


@given(
    st.lists(st.floats(width=32), min_size=1, max_size=5),
    st.fixed_dictionaries({"balance": st.floats(), "fairness": st.floats()}),
)
def test_with_noise_nothing_is_refused(delta, scores):
    update, values = admitted(np.array(delta, dtype=np.float64), scores, confine=True)
    assert FORMAT.norm(update) < FORMAT.limit
    assert 0 <= values["balance"] <= 1 and 0 <= values["fairness"] <= 2


def test_a_good_update_is_encoded_with_the_rules_scores_in_their_order(caplog):
    for confine in (False, True):
        update, values = admitted([0.25, -0.5], {"other": 9.0, "fairness": 1.5, "balance": 0.5}, confine)
        assert list(update.view(np.int64)) == [2**23, -(2**24)]
        assert list(values.items()) == list(GOOD.items())
    assert not caplog.records


@pytest.mark.parametrize(
    ("embedding", "text"),
    [
        ([0.6, 0.8, 0.1], "norm above 1"),
        ([0.0, 1.01, 0.0], "outside its public range"),
        ([0.0, np.nan, 0.0], "outside its public range"),
        ([0.6, 0.8], "2 coordinates, expected 3"),
        (0.5, "1 coordinates, expected 3"),
    ],
)
def test_a_vector_that_is_none_of_the_rules_is_refused(embedding, text):
    parameters = RoundParameters("fedpub", 2, embedding=3)
    with pytest.raises(RangeError, match=f"round 3, client 7: the embedding score .*{text}"):
        update = LocalUpdate(np.zeros(2), 0.0, {"embedding": np.array(embedding)})
        admit(FORMAT, parameters, update, PLACE, confine=False)


def test_embeddings_of_norm_one_in_float32_and_zero_ones_are_taken():
    parameters, rng = RoundParameters("fedpub", 2, embedding=128), np.random.default_rng(0)
    for _ in range(50):
        direction = rng.normal(size=128).astype(np.float32)
        embedding = (direction / np.linalg.norm(direction)).astype(np.float64)
        for score in (embedding, 0 * embedding):
            _, values = admit(
                FORMAT, parameters, LocalUpdate(np.zeros(2), 0.0, {"embedding": score}), PLACE, confine=False
            )
            np.testing.assert_array_equal(values["embedding"], score)


def test_the_simulation_of_noise_takes_what_shares_would_hold():
    encoder = SimulatingEncoder(PARAMETERS, FORMAT)
    upload = encoder(LocalUpdate(np.array([1.0, 2.0**-27]), 99.0, GOOD), Place(1, 0, 4))
    assert (list(upload.delta), upload.norm, upload.scores) == ([1.0, 0.0], 1.0, GOOD)
    assert encoder(LocalUpdate(np.array([np.nan]), np.nan, GOOD), Place(1, 0, 4)).norm == 0.0
