"""Inside a client process: who is hosted, who trains together, and how states lie in a file."""

from __future__ import annotations

import multiprocessing
import sys
from importlib import import_module
from pickle import UnpicklingError

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from orchestrator.client import admission, host
from orchestrator.client.host import Clients, Order, _batches, _read_states, _write_states, serve
from orchestrator.errors import DataError, RunError
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


# Failing while failing


class Does(Order):
    """An order whose outcome is given: what it raises, or returns."""

    def __init__(self, outcome):
        self.outcome = outcome

    def carry_out(self, clients, connection):
        if isinstance(self.outcome, BaseException):
            raise self.outcome
        return self.outcome


class Gone:
    """A connection on which one order comes, and whose other end then closes."""

    def __init__(self, order, error=BrokenPipeError):
        self.orders, self.error, self.tried = [order], error, 0

    def recv(self):
        if self.orders:
            return self.orders.pop()
        raise EOFError

    def send(self, message):
        self.tried += 1
        raise self.error("secret 4711")


OUTCOMES = [
    DataError("secret 4711"),
    ValueError("secret 4711"),
    SystemExit("secret 4711"),
    KeyboardInterrupt("secret 4711"),
    MemoryError(),
    OSError(28, "secret 4711"),
    5,
]


@pytest.fixture
def heedless(monkeypatch):
    """This process keeps its own Ctrl-C and threads."""
    monkeypatch.setattr(host.signal, "signal", lambda *arguments: None)
    monkeypatch.setattr(host, "single_threaded", lambda: None)


@pytest.mark.parametrize("outcome", OUTCOMES, ids=lambda value: type(value).__name__)
@pytest.mark.parametrize("error", [BrokenPipeError, ConnectionResetError, OSError])
def test_a_client_whose_coordinator_has_gone_ends_silently(setting, heedless, capfd, outcome, error):
    config, graphs = setting
    connection = Gone(Does(outcome), error)
    assert serve(connection, graphs, config) is None
    assert connection.tried == 1 and capfd.readouterr() == ("", "")


@pytest.mark.parametrize("outcome", [*OUTCOMES[1:-1], lambda: "secret 4711"], ids=lambda value: type(value).__name__)
def test_a_failure_is_told_by_its_kind_and_place_and_the_process_lives_on(setting, heedless, capfd, outcome):
    """Also where the answer is one that cannot be sent, such as a function."""
    config, graphs = setting
    ours, theirs = multiprocessing.Pipe()
    kinds = []

    class Both(Gone):
        def send(self, message):
            theirs.send(message)
            kinds.append(ours.recv())

    connection = Both(None)
    connection.orders = [Does(5), Does(outcome)]
    serve(connection, graphs, config)
    assert kinds[0][0] == "failed" and " in " in kinds[0][1] and "4711" not in kinds[0][1]
    assert kinds[1] == ("done", 5) and capfd.readouterr() == ("", "")


def test_an_order_that_cannot_be_read_is_a_failure_without_its_text(setting, heedless, capfd):
    config, graphs = setting

    class Garbled(Gone):
        def recv(self):
            raise ImportError("secret 4711")

        def send(self, message):
            self.said = message

    connection = Garbled(None)
    serve(connection, graphs, config)
    assert connection.said[0] == "failed" and connection.said[1].startswith("ImportError in test_host.py")
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (EOFError("secret 4711"), ""),
        (ValueError("secret 4711"), "safegnn: a client process ended: ValueError in test_host.py, line "),
        (UnpicklingError("secret 4711"), "safegnn: a client process ended: UnpicklingError in test_host.py, line "),
        (
            ModuleNotFoundError("secret 4711"),
            "safegnn: a client process ended: ModuleNotFoundError in test_host.py, line ",
        ),
    ],
    ids=lambda value: type(value).__name__,
)
def test_a_client_that_cannot_even_begin_is_one_line(monkeypatch, capsys, error, said):
    monkeypatch.setattr(sys, "excepthook", sys.excepthook)  # importing the module sets it
    sys.modules.pop("orchestrator.client.preload", None)
    import_module("orchestrator.client.preload")
    try:
        raise error
    except type(error):
        sys.excepthook(*sys.exc_info())
    err = capsys.readouterr().err
    assert err.startswith(said) and err.count("\n") == bool(said) and "4711" not in err


def test_a_process_that_serves_a_new_run_warns_anew(setting, monkeypatch):
    config, graphs = setting
    monkeypatch.setattr(admission, "_warned", {"update"})
    ours, theirs = multiprocessing.Pipe()
    ours.close()
    serve(theirs, graphs, config)
    assert not admission._warned
