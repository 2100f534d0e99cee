"""What client processes import in tests: main functions that mostly fail, each in one way, a method, and encoders."""

from __future__ import annotations

import os
import signal
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from orchestrator.client.host import serve
from orchestrator.coordinator.engine import Engine
from orchestrator.errors import DataError, RangeError
from orchestrator.methods import LocalMethod, LocalUpdate
from orchestrator.registry import METHODS


def await_order(connection):
    """Or until the pool closes, which a process that is slow to die may still see."""
    with suppress(EOFError):
        connection.recv()


def dies_on_an_order(connection, graphs, config):
    await_order(connection)
    os.kill(os.getpid(), signal.SIGKILL)


class DiesInProcess1:
    """A connection that lets process 1 die when it is ordered to train."""

    def __init__(self, connection):
        self._connection, self.send = connection, connection.send

    def recv(self):
        order = self._connection.recv()
        if order.process == 1:
            os.kill(os.getpid(), signal.SIGKILL)
        return order


def dies_if_it_hosts_client_1(connection, graphs, config):
    serve(DiesInProcess1(connection), graphs, config)


def stalls_on_an_order(connection, graphs, config):
    await_order(connection)
    signal.pause()


def never_listens(connection, graphs, config):
    signal.pause()


def stalls_in_the_middle_of_an_answer(connection, graphs, config):
    await_order(connection)
    os.write(connection.fileno(), b"\x00\x10\x00\x00half of it")
    signal.pause()


def refuses_at_once(connection, graphs, config):
    connection.send(("refused", DataError("client 0: nothing to train on")))


def breaks_on_an_order(connection, graphs, config):
    await_order(connection)
    connection.send(("failed", "ZeroDivisionError: division by zero"))


def cannot_be_read():
    raise ValueError("secret 4711")


class _Unreadable:
    def __reduce__(self):
        return cannot_be_read, ()


def sends_what_cannot_be_read(connection, graphs, config):
    await_order(connection)
    connection.send(("done", _Unreadable()))


def tells_its_blocked_signals(connection):
    connection.send(signal.pthread_sigmask(signal.SIG_BLOCK, []))


class Uneven(LocalMethod):
    """Client c's state has shapes of its own. It asks for, answers and hears numbers that say who spoke to whom."""

    def __init__(self, graph, config, client):
        self.client, self.graph, self.received = client, graph, np.zeros(0)
        self.heard: list[float | None] = []
        self.rows = np.full((client, 2), client, np.float32)

    def train(self, parameters):
        scores = {"rows": float(self.rows.sum()), "received": float(self.received.sum()), "heard": list(self.heard)}
        return LocalUpdate(np.zeros(1), 0.0, scores)

    def receive(self, parameters):
        self.received = parameters

    def logits(self, parameters, own):
        return np.eye(self.graph.classes)[np.full(self.graph.num_nodes, int(own))]

    def facts(self):
        return {"client": self.client}

    def ask(self, step):
        return {"question": np.array([100.0 * step + self.client])}

    def answer(self, step, questions):
        return np.concatenate([question["question"] * 2.0**self.client for question in questions.values()])

    def hear(self, step, answer):
        self.heard += [None] if answer is None else answer.tolist()

    def state_dict(self):
        more = {} if self.client % 2 else {"even": self.client}
        return {"rows": 10 * self.rows, "participations": self.client + 1, **more}

    def load_state_dict(self, state):
        expected = self.state_dict()
        assert {key: np.shape(value) for key, value in state.items()} == {k: np.shape(v) for k, v in expected.items()}
        assert type(state["participations"]) is int and state["participations"] == self.client + 1
        assert state["rows"].dtype == np.float32 and state.get("even") == expected.get("even")
        self.rows = state["rows"]


class Fails(Uneven):
    """Client 1's training fails, with its data in what it says."""

    def train(self, parameters):
        if self.client == 1:
            raise ZeroDivisionError(str(self.rows))
        return super().train(parameters)


def hosts_clients_of_whom_1_fails(connection, graphs, config):
    METHODS[config.method.name] = replace(METHODS[config.method.name], client=f"{__name__}:Fails", rule=None)
    serve(connection, graphs, config)


def hosts_uneven_clients(connection, graphs, config):
    METHODS[config.method.name] = replace(METHODS[config.method.name], client=f"{__name__}:Uneven", rule=None)
    serve(connection, graphs, config)


def everything(update, place, reply_key=b""):
    """An encoder that shows all that it was given."""
    shown = {"delta": update.delta, "norm": update.norm, "scores": dict(update.scores), **vars(place)}
    return shown | ({"reply_key": reply_key} if reply_key else {})


def opens(answer, keypair, place):
    """A decoder that opens a sealed vector and adds to it where it arrived."""
    return np.array([*np.frombuffer(keypair.open(answer)), place.round, place.slot, place.client])


def refuse_client_2(update, place, reply_key=b""):
    if place.client == 2:
        raise RangeError(f"{place}: too large")
    return place.slot, place.client


def divide_by_zero(update, place, reply_key=b""):
    return np.asarray([1, 2, 3])[place.client + 10]


LIES = {
    1: "one byte short",
    2: "40 MB of empty maps",
    3: "a flipped byte",
    4: "halves of two uploads",
    5: "another client's place",
    6: "another round",
    7: "an exception",
    8: "an update out of range",
    9: "no envelopes at all",
    10: "garbage of the right length",
}
"""What the bad client does, by round."""


@dataclass(frozen=True)
class LyingEncoder:
    """An encoder of which one client's results are not what they should be; another way in every round."""

    encoder: Any
    bad: int

    def __call__(self, update, place, reply_key=b""):
        def honest(**other):
            return self.encoder(update, replace(place, **other), reply_key)

        if place.client != self.bad or place.round not in LIES:
            return honest()
        first, second = honest()
        match LIES[place.round]:
            case "one byte short":
                return first, second[:-1]
            case "40 MB of empty maps":
                return first, b"\x80" * 40_000_000
            case "a flipped byte":
                return first[:-1] + bytes([first[-1] ^ 1]), second
            case "halves of two uploads":
                return first, honest()[1]
            case "another client's place":
                return honest(client=place.client + 1)
            case "another round":
                return honest(round=place.round + 1)
            case "an exception":
                return first / second
            case "an update out of range":
                raise RangeError(f"{place}: the update does not fit")
            case "no envelopes at all":
                return {"upload": [first, second]}
            case "garbage of the right length":
                return bytes(len(first)), bytes(len(second))


class LyingEngine(Engine):
    """An engine for clients of whom one lies, since a round; for `train(engine=...)`."""

    def __init__(self, engine, bad, since=1):
        self._engine, self._bad, self.plan, self._since, self._round = engine, bad, engine.plan, since, 0

    @property
    def encoder(self):
        honest = self._engine.encoder
        return LyingEncoder(honest, self._bad) if self._round >= self._since else honest

    @property
    def decoder(self):
        return self._engine.decoder

    def start(self, parameters):
        self._engine.start(parameters)

    def prepare(self, round, size, terms=None):
        self._round = round
        self._engine.prepare(round, size, terms)

    def submit(self, round, slot, client, upload):
        self._engine.submit(round, slot, client, upload)

    def aggregate(self, round, cohort):
        return self._engine.aggregate(round, cohort)

    def close(self):
        self._engine.close()
