"""Client processes: what comes back, what happens when one fails, and that none is left."""

from __future__ import annotations

import os
import re
import signal
import sys

import numpy as np
import pytest

from orchestrator.client.summands import Answers
from orchestrator.coordinator.client_pool import ClientPool, warm_up
from orchestrator.errors import DataError, PeerLostError, PeerTimeoutError, RangeError, RunError
from orchestrator.graphs import client_graphs, load_graph
from orchestrator.methods import create
from orchestrator.models import create_network
from orchestrator.wire.envelope import seal
from orchestrator.wire.message import Place
from tests import faulty_clients
from tests.faulty_clients import everything

pytestmark = pytest.mark.usefixtures("forkserver", "one_thread")


@pytest.fixture(scope="module")
def setting(tiny, tmp_path_factory):
    """``setting(...)``: a configuration, its clients' graphs and a model."""
    folder = tmp_path_factory.mktemp("runs")

    def build(*overrides: str):
        config = tiny(folder, *overrides)
        graph = load_graph(config.data, config.seed)
        model = create_network(graph.num_features, graph.classes, config.model).initial_parameters(config.seed)
        graphs = [part.scaled_to_train() for part in client_graphs(graph, config.clients, config.seed)]
        return config, graphs, model

    return build


class Inbox(dict):
    """Uploads by slot."""

    def __call__(self, slot, client, upload):
        assert slot not in self
        self[slot] = (client, upload)


def alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def close(first: dict, second: dict) -> bool:
    return np.allclose(first["delta"], second["delta"], atol=1e-5) and all(
        first[key] == second[key] for key in ("round", "slot", "client")
    )


def same(first: dict, second: dict) -> bool:
    return np.array_equal(first["delta"], second["delta"]) and all(
        first[key] == second[key] for key in ("norm", "scores", "client")
    )


# What comes back


@pytest.mark.parametrize("processes", [1, 2, 4, 9])
def test_every_slot_gets_the_update_of_its_client_whatever_the_number_of_processes(setting, processes):
    config, graphs, model = setting(f"engine.client_processes={processes}")
    cohort, inbox = [4, 1, 3, 0, 5, 2], Inbox()
    with ClientPool(graphs, config) as pool:
        assert len(pool.pids) == min(processes, 6)
        pool.train(7, cohort, model, everything, inbox)
    assert sorted(inbox) == list(range(6))
    for slot, client in enumerate(cohort):
        expected = create(graphs[client], config, client).train(model)
        delivered_client, upload = inbox[slot]
        assert (delivered_client, upload["client"], upload["slot"], upload["round"]) == (client, client, slot, 7)
        assert same(upload, everything(expected, Place(7, slot, client)))


def test_a_client_that_is_drawn_twice_trains_twice(setting, tmp_path):
    config, graphs, model = setting()
    inbox = Inbox()
    with ClientPool(graphs, config) as pool:
        pool.train(1, [2, 0, 2], model, everything, inbox)
        assert pool.save(1, [2, 0, 2], tmp_path).keys() == {0, 2}
    client = create(graphs[2], config, 2)
    for slot in (0, 2):
        update = client.train(model)
        assert same(inbox[slot][1], everything(update, Place(1, slot, 2)))
    assert not np.array_equal(inbox[0][1]["delta"], inbox[2][1]["delta"])


@pytest.mark.parametrize("size", [2, 3, 100])
def test_batches_change_nothing_but_rounding(setting, tmp_path, size):
    """Also where a client is drawn twice: it then trains in two batches, one after the other."""
    inboxes, states, cohort = [], [], [4, 0, 2, 2, 1, 0, 5]
    for number in (1, size):
        config, graphs, model = setting(f"clients.batch={number}", "method.stateful=false", "method.tau_combine=1.0")
        inboxes.append(Inbox())
        with ClientPool(graphs, config) as pool:
            pool.train(4, cohort, model, everything, inboxes[-1])
            states.append(pool.save(4, cohort, tmp_path))
    assert sorted(inboxes[0]) == sorted(inboxes[1]) == list(range(7))
    assert all(close(inboxes[0][slot][1], inboxes[1][slot][1]) for slot in range(7))
    assert not np.array_equal(inboxes[1][2][1]["delta"], inboxes[1][3][1]["delta"])
    assert states[0] == states[1] and states[0].keys() == {0, 1, 2, 4, 5}
    assert len(set(states[0].values())) == 2  # one file a process


def test_a_state_of_another_client_is_an_error_that_names_both(setting, tmp_path):
    config, graphs, model = setting()
    with ClientPool(graphs, config) as pool:
        pool.train(1, [2], model, everything, Inbox())
        states = pool.save(1, [2], tmp_path)
        with pytest.raises(RunError, match=r"client-process-0-round-1\.npz: holds no training state of client 4"):
            pool.restore({4: states[2]})


def test_audits_come_by_slot_and_only_where_asked_for(setting):
    config, graphs, model = setting()
    inbox = Inbox()
    with ClientPool(graphs, config) as pool:
        assert pool.train(1, [5, 2], model, everything, Inbox()).audits == {}
        trained = pool.train(2, [3, 0, 1], model, faulty_clients.refuse_client_2, inbox, audit=everything)
    assert {slot: (audit["slot"], audit["client"]) for slot, audit in trained.audits.items()} == {
        0: (0, 3),
        1: (1, 0),
        2: (2, 1),
    }
    assert inbox == {0: (3, (0, 3)), 1: (0, (1, 0)), 2: (1, (2, 1))}
    assert trained.seconds > 0


@pytest.mark.parametrize(("method", "preset"), [("f2gnn", "paper"), ("f2gnn", "reference"), ("fedavg", "paper")])
def test_restored_clients_continue_bit_by_bit(tiny, setting, tmp_path, method, preset):
    config, graphs, model = setting(f"method.name={method}")
    config = config.model_copy(update={"method": tiny(tmp_path, f"method.name={method}", presets=(preset,)).method})
    uninterrupted, resumed = Inbox(), Inbox()
    with ClientPool(graphs, config) as pool:
        pool.train(1, [0, 1, 2], model, everything, Inbox())
        states = pool.save(1, [0, 1, 2], tmp_path)
        pool.train(2, [1, 4, 1], model + 0.01, everything, Inbox())
        states |= pool.save(2, [1, 4, 1], tmp_path)
        pool.train(3, [0, 1, 4, 5], model - 0.01, everything, uninterrupted)
    assert {client: path.name for client, path in states.items()} == {
        0: "client-process-0-round-1.npz",
        1: "client-process-1-round-2.npz",
        2: "client-process-0-round-1.npz",
        4: "client-process-0-round-2.npz",
    }
    with ClientPool(graphs, config) as pool:
        pool.restore(states)
        pool.train(3, [0, 1, 4, 5], model - 0.01, everything, resumed)
    assert [same(resumed[slot][1], uninterrupted[slot][1]) for slot in range(4)] == [True] * 4
    with ClientPool(graphs, config) as pool:  # and the states matter
        fresh = Inbox()
        pool.train(3, [0, 1, 4, 5], model - 0.01, everything, fresh)
    assert [same(fresh[slot][1], uninterrupted[slot][1]) for slot in range(4)] == [False, False, False, True]


def test_states_of_other_names_and_shapes_stand_in_one_file(setting, tmp_path):
    """Client c's state has c rows, and even clients have a name more."""
    config, graphs, model = setting()
    with ClientPool(graphs, config, faulty_clients.hosts_uneven_clients) as pool:
        states = pool.save(3, range(6), tmp_path)
        assert {client: path.name for client, path in states.items()} == {
            client: f"client-process-{client % 2}-round-3.npz" for client in range(6)
        }
        assert sorted(path.name for path in tmp_path.iterdir()) == sorted({path.name for path in states.values()})
        pool.restore({client: states[client] for client in (0, 3, 4, 5)})
        pool.train(4, range(6), model, everything, inbox := Inbox())
    rows = [inbox[slot][1]["scores"]["rows"] for slot in range(6)]
    assert rows == [2 * c * c * (10 if c in (0, 3, 4, 5) else 1) for c in range(6)]  # the others were not restored


def test_saving_nobody_writes_nothing(setting, tmp_path):
    config, graphs, _ = setting()
    with ClientPool(graphs, config) as pool:
        assert pool.save(1, [], tmp_path) == {} and list(tmp_path.iterdir()) == []
        assert pool.save(1, [3], tmp_path) == {3: tmp_path / "client-process-1-round-1.npz"}


def test_answers_arrive_at_the_client_alone_that_gave_the_key(setting):
    config, graphs, model = setting()
    cohort = [4, 1, 3]
    with ClientPool(graphs, config, faulty_clients.hosts_uneven_clients) as pool:
        pool.train(7, cohort, model, everything, inbox := Inbox(), keyed=True)
        keys = [inbox[slot][1]["reply_key"] for slot in range(3)]
        assert len(set(keys)) == 3
        sealed = [seal(np.array([float(c)]).tobytes(), key) for c, key in zip(cohort, keys, strict=True)]
        answers = dict(enumerate(sealed))
        assert pool.deliver(7, cohort, answers, faulty_clients.opens) == {}  # nobody but the client sees its model
        opened = pool.deliver(7, cohort, answers, faulty_clients.opens, reveal=True)
        assert {slot: list(model) for slot, model in opened.items()} == {
            0: [4, 7, 0, 4],
            1: [1, 7, 1, 1],
            2: [3, 7, 2, 3],
        }
        pool.train(8, range(6), model, everything, after := Inbox(), keyed=True)
        assert [after[slot][1]["scores"]["received"] for slot in range(6)] == [0, 10, 0, 15, 15, 0]
        assert [after[c][1]["reply_key"] for c in cohort] == keys  # a key lives as long as the process
        assert pool.deliver(8, cohort, {1: answers[1]}, faulty_clients.opens, reveal=True).keys() == {1}
        with pytest.raises(PeerLostError, match="phase delivery"):
            pool.deliver(8, cohort, dict(enumerate(sealed[::-1])), faulty_clients.opens)


def test_evaluations_come_by_client(setting):
    config, graphs, model = setting()
    with ClientPool(graphs, config, faulty_clients.hosts_uneven_clients) as pool:
        for own in (False, True):
            said = pool.evaluate(1, [5, 0, 5, 2], model, own)
            assert said.keys() == {0, 2, 5}
            for c, answer in said.items():
                assert answer.keys() == {"val", "test", "val_auc", "test_auc", "client"} and answer["client"] == c
                graph = graphs[c]
                for mask in ("val", "test"):
                    expected, kept = np.zeros((2, 2, 2), int), getattr(graph, mask)
                    np.add.at(expected, (graph.sensitive[kept], graph.labels[kept], int(own)), 1)
                    np.testing.assert_array_equal(answer[mask], expected)


@pytest.mark.parametrize("processes", [1, 3])
def test_all_ask_answer_everybody_and_hear_what_is_for_them(setting, processes):
    config, graphs, model = setting(f"engine.client_processes={processes}")
    with ClientPool(graphs, config, faulty_clients.hosts_uneven_clients) as pool:
        questions = pool.ask(3)
        assert list(questions) == list(range(6))
        given = Inbox()
        assert not pool.contribute(4, range(6), Answers(3, questions), 1e5, 6, everything, given)
        for c in range(6):
            np.testing.assert_allclose(given[c][1]["delta"] * -1e5, [(300 + asker) * 2**c for asker in range(6)])
        pool.hear(3, {c: np.array([10.0 * c]) for c in range(6)})
        pool.hear(4, dict.fromkeys(range(6)))
        pool.train(1, range(6), model, everything, inbox := Inbox())
    assert [inbox[c][1]["scores"]["heard"] for c in range(6)] == [[10.0 * c, None] for c in range(6)]


@pytest.mark.parametrize("content", [None, b"", b"PK\x03\x04 no archive", b"text"])
def test_a_damaged_state_is_an_error_that_names_the_file(setting, tmp_path, content):
    config, graphs, _ = setting()
    path = tmp_path / "client-process-1-round-1.npz"
    if content is not None:
        path.write_bytes(content)
    with ClientPool(graphs, config) as pool, pytest.raises(RunError) as caught:
        pool.restore({3: path})
    assert str(caught.value).startswith(f"{path}: ") and "\n" not in str(caught.value)


# Failures


def test_a_client_that_refuses_is_missing_with_its_reason_and_the_others_are_not(setting):
    config, graphs, model = setting()
    inbox = Inbox()
    with ClientPool(graphs, config) as pool:
        trained = pool.train(4, [0, 2, 5], model, faulty_clients.refuse_client_2, inbox, audit=everything)
        assert inbox == {0: (0, (0, 0)), 2: (5, (2, 5))}
        assert list(trained.missing) == [1] and list(trained.audits) == [0, 2]
        assert isinstance(trained.missing[1], RangeError) and str(trained.missing[1]) == "round 4, client 2: too large"
        assert not pool.train(5, [0, 2, 5], model, everything, Inbox()).missing  # its process lives on


def test_a_training_that_diverges_is_a_range_error_that_names_the_client(setting):
    config, graphs, model = setting("method.learning_rate=1e38")
    with ClientPool(graphs, config) as pool:
        [error] = pool.train(1, [3], model, everything, Inbox()).missing.values()
    assert isinstance(error, RangeError) and re.search(r"client 3: .*method\.learning_rate", str(error))


def test_an_unforeseen_error_names_its_kind_and_place_and_not_what_it_says(setting):
    config, graphs, model = setting()
    with ClientPool(graphs, config) as pool:
        [error] = pool.train(1, [2], model, faulty_clients.divide_by_zero, Inbox()).missing.values()
    assert isinstance(error, PeerLostError)
    assert (error.peer, error.phase, error.round) == ("client 2", "local training", 1)
    assert re.fullmatch(r"IndexError in faulty_clients\.py, line \d+", error.reason)


@pytest.mark.parametrize("processes", [1, 3])
def test_a_client_whose_training_fails_is_missing_and_its_process_lives_on(setting, processes):
    config, graphs, model = setting(f"engine.client_processes={processes}")
    with ClientPool(graphs, config, faulty_clients.hosts_clients_of_whom_1_fails) as pool:
        for number in (1, 2):
            trained = pool.train(number, [3, 1, 0], model, everything, inbox := Inbox())
            assert sorted(inbox) == [0, 2] and list(trained.missing) == [1]
            assert trained.missing[1].peer == "client 1"
            assert re.fullmatch(r"ZeroDivisionError in faulty_clients\.py, line \d+", trained.missing[1].reason)


def test_what_a_process_says_before_it_ends_is_heard(setting):
    config, graphs, model = setting("engine.client_processes=1")
    with ClientPool(graphs, config, faulty_clients.refuses_at_once) as pool:
        pool._processes[0].join()
        with pytest.raises(DataError, match="client 0: nothing to train on"):
            pool.train(1, [0], model, everything, Inbox())


def test_a_full_disk_at_a_client_is_an_error_of_one_line(setting, tmp_path):
    config, graphs, model = setting()
    with ClientPool(graphs, config) as pool, pytest.raises(RunError) as caught:
        pool.train(1, [2], model, everything, Inbox())
        pool.save(1, [2], tmp_path / "none")
    assert "client-process-0-round-1.npz: cannot be written" in str(caught.value)


@pytest.mark.parametrize(
    ("host", "kind", "reason"),
    [
        (faulty_clients.dies_on_an_order, PeerLostError, "the process ended with status -9"),
        (faulty_clients.stalls_on_an_order, PeerTimeoutError, "no answer within 1 s"),
        (faulty_clients.stalls_in_the_middle_of_an_answer, PeerTimeoutError, "no answer within 1 s"),
        (faulty_clients.breaks_on_an_order, PeerLostError, "ZeroDivisionError: division by zero"),
    ],
    ids=lambda value: getattr(value, "__name__", None),
)
def test_a_process_that_fails_while_training_is_named(setting, host, kind, reason):
    config, graphs, model = setting("engine.client_processes=1", "engine.training_timeout_sec=1")
    with ClientPool(graphs, config, host) as pool, pytest.raises(kind) as caught:
        pool.train(5, [3, 1], model, everything, Inbox())
    assert caught.value.peer == "client process 0 (clients 0, 1, 2, 3, ...)"
    assert (caught.value.phase, caught.value.round) == ("local training", 5)
    assert reason in str(caught.value) and "\n" not in str(caught.value)


def test_a_process_that_takes_no_order_is_named(setting):
    """The order is larger than the pipe, so that sending it would otherwise never end."""
    config, graphs, _ = setting("engine.client_processes=1", "engine.training_timeout_sec=1")
    with ClientPool(graphs, config, faulty_clients.never_listens) as pool:
        with pytest.raises(PeerTimeoutError) as caught:
            pool.train(2, [0], np.zeros(10**6), everything, Inbox())
        assert (caught.value.phase, caught.value.round) == ("local training", 2)


def test_only_the_process_that_died_is_blamed(setting):
    config, graphs, model = setting("engine.client_processes=3")
    with ClientPool(graphs, config, faulty_clients.dies_if_it_hosts_client_1) as pool:
        pool.train(1, [0, 2, 3], model, everything, inbox := Inbox())
        assert sorted(inbox) == [0, 1, 2]
        with pytest.raises(PeerLostError) as caught:
            pool.train(2, [0, 1], model, everything, Inbox())
    assert caught.value.peer == "client process 1 (clients 1, 4)"


def test_a_process_killed_between_rounds_fails_the_next_one(setting):
    config, graphs, model = setting()
    with ClientPool(graphs, config) as pool:
        pool.train(1, [0, 1], model, everything, Inbox())
        os.kill(pool.pids[1], signal.SIGKILL)
        with pytest.raises(PeerLostError) as caught:
            pool.train(2, [0, 1, 2], model, everything, Inbox())
    assert caught.value.peer == "client process 1 (clients 1, 3, 5)"
    assert caught.value.round == 2 and "status -9" in caught.value.reason


def test_a_process_killed_before_it_is_restored_is_named(setting):
    config, graphs, _ = setting()
    with ClientPool(graphs, config) as pool:
        os.kill(pool.pids[0], signal.SIGKILL)
        with pytest.raises(PeerLostError) as caught:
            pool.restore({})
    assert caught.value.phase == "restoring"


# Processes


@pytest.mark.parametrize("host", [None, faulty_clients.never_listens, faulty_clients.dies_on_an_order])
def test_closing_leaves_no_process(setting, host):
    config, graphs, model = setting("engine.client_processes=3")
    pool = ClientPool(graphs, config, host)
    pids = pool.pids
    assert len(set(pids)) == 3 and all(map(alive, pids))
    if host is None:
        pool.train(1, [0, 1, 2], model, everything, Inbox())
    pool.close()
    pool.close()
    assert not any(map(alive, pids)) and pool.pids == []


def test_an_error_inside_the_block_leaves_no_process(setting):
    config, graphs, _ = setting()
    with pytest.raises(KeyboardInterrupt), ClientPool(graphs, config) as pool:
        pids = pool.pids
        raise KeyboardInterrupt
    assert not any(map(alive, pids))


def test_the_scripts_name_is_back_after_the_start(setting):
    main = sys.modules["__main__"]
    before = (main.__spec__, getattr(main, "__file__", None))
    config, graphs, _ = setting()
    with ClientPool(graphs, config):
        assert (main.__spec__, getattr(main, "__file__", None)) == before


def test_ctrl_c_is_blocked_in_the_helper_and_so_in_what_it_forks_but_not_here():
    """Or a Ctrl-C while the helper imports would end it with a traceback."""
    context = warm_up()
    ours, theirs = context.Pipe()
    process = context.Process(target=faulty_clients.tells_its_blocked_signals, args=(theirs,))
    process.start()
    assert signal.SIGINT in ours.recv()
    process.join()
    assert signal.SIGINT not in signal.pthread_sigmask(signal.SIG_BLOCK, [])


class Unreadable:
    """A main function that no process can read; what it says must not be seen."""

    def __call__(self, connection, graphs, config):
        raise NotImplementedError

    def __reduce__(self):
        return faulty_clients.cannot_be_read, ()


def test_a_process_that_cannot_begin_is_a_lost_peer(setting):
    """What it prints is one line, as the check of every test's output for tracebacks shows."""
    config, graphs, model = setting("engine.client_processes=1")
    with ClientPool(graphs, config, Unreadable()) as pool, pytest.raises(PeerLostError, match="ended with status"):
        pool.train(1, [0], model, everything, Inbox())


@pytest.mark.parametrize("error", [OSError(24, "Too many open files"), BlockingIOError(11, "Try again"), EOFError()])
def test_without_room_for_a_process_more_none_is_left(setting, monkeypatch, error):
    config, graphs, _ = setting("engine.client_processes=2")
    kind, started = warm_up().Process, []
    original = kind.start

    def start(self):
        if started:
            raise error
        started.append(self)
        original(self)

    monkeypatch.setattr(kind, "start", start)
    with pytest.raises(PeerLostError, match=r"client process 1 \(clients 1, 3, 5\): cannot be started"):
        ClientPool(graphs, config)
    assert started[0].exitcode == -signal.SIGKILL


def test_an_answer_that_cannot_be_read_is_the_clients_fault(setting):
    config, graphs, model = setting("engine.client_processes=1")
    refused = pytest.raises(PeerLostError, match=r"sent what cannot be read \(ValueError\)")
    with ClientPool(graphs, config, faulty_clients.sends_what_cannot_be_read) as pool, refused as caught:
        pool.train(1, [0], model, everything, Inbox())
    assert "4711" not in str(caught.value)
