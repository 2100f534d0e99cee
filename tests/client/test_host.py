"""Inside a client process: who is hosted, who trains together, and how states lie in a file."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from orchestrator.client.host import Clients, _batches, _read_states, _write_states
from orchestrator.errors import RunError
from orchestrator.graphs import client_graphs, load_graph


@pytest.fixture(scope="module")
def setting(tiny, tmp_path_factory):
    config = tiny(tmp_path_factory.mktemp("runs"))
    return config, client_graphs(load_graph(config.data, config.seed), config.clients, config.seed)


def test_a_process_holds_only_clients_that_took_part(setting):
    config, graphs = setting

    class Asked(list):
        def __getitem__(self, index):
            asked.append(index)
            return super().__getitem__(index)

    asked = []
    clients = Clients(Asked(graphs), config)
    assert clients[3] is clients[3] and clients[1] is not clients[3]
    assert asked == [3, 1]


def test_every_client_has_a_key_of_its_own_that_stays(setting):
    config, graphs = setting
    clients, others = Clients(graphs, config), Clients(graphs, config)
    keys = [clients.keypair(c).public_key for c in (0, 1, 0)]
    assert keys[0] == keys[2] != keys[1] and others.keypair(0).public_key not in keys
    assert not clients  # a key makes no client


@given(st.lists(st.integers(0, 5), min_size=1, max_size=20), st.integers(1, 8))
def test_batches_are_consecutive_places_of_distinct_clients(clients, size):
    places = list(enumerate(clients))
    batches = list(_batches(places, size))
    assert [place for batch in batches for place in batch] == places
    for batch, following in zip(batches, [*batches[1:], None], strict=True):
        members = [client for _, client in batch]
        assert 1 <= len(members) == len(set(members)) <= size
        assert following is None or len(members) == size or following[0][1] in members  # none ends early


NAMES = st.sampled_from(["own", "step", "participations", "a b", "x/y"])
SHAPES = st.lists(st.integers(0, 3), max_size=3).map(tuple)
STATES = st.dictionaries(st.integers(0, 40), st.dictionaries(NAMES, st.integers(0, 9) | SHAPES, max_size=4), max_size=5)


@given(STATES, st.data())
@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_states_come_back_whatever_their_names_and_shapes(tmp_path, plan, data):
    rng = np.random.default_rng(1)
    states = {
        c: {name: what if isinstance(what, int) else rng.normal(size=what) for name, what in state.items()}
        for c, state in plan.items()
    }
    path = tmp_path / "states.npz"
    _write_states(path, states)
    members = data.draw(st.lists(st.sampled_from(sorted(states)), unique=True)) if states else []
    read = _read_states(path, [*members, 41])
    assert read.keys() == {*members, 41} and read[41] == {}
    for c in members:
        assert read[c].keys() == states[c].keys()
        for name, value in states[c].items():
            again = read[c][name]
            np.testing.assert_array_equal(again, value)
            assert np.shape(again) == np.shape(value)
            assert np.ndim(value) or not isinstance(again, np.ndarray)


def test_types_come_back(tmp_path):
    state = {"count": 3, "rate": 0.5, "small": np.zeros(2, np.float32), "whole": np.zeros((1, 2), np.int64)}
    _write_states(tmp_path / "s.npz", {7: state})
    read = _read_states(tmp_path / "s.npz", [7])[7]
    assert type(read["count"]) is int and type(read["rate"]) is float
    assert read["small"].dtype == np.float32 and read["whole"].dtype == np.int64


def test_a_file_that_cannot_be_read_is_named(tmp_path):
    with pytest.raises(RunError, match=r"none\.npz"):
        _read_states(tmp_path / "none.npz", [1])
