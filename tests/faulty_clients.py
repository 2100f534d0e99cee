"""Main functions of client processes that mostly fail, each in one way, and encoders; those processes import them."""

from __future__ import annotations

import os
import signal

import numpy as np

from orchestrator.clients import serve
from orchestrator.errors import DataError, RangeError


def dies_on_an_order(connection, graphs, config):
    connection.recv()
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
    connection.recv()
    signal.pause()


def never_listens(connection, graphs, config):
    signal.pause()


def stalls_in_the_middle_of_an_answer(connection, graphs, config):
    connection.recv()
    os.write(connection.fileno(), b"\x00\x10\x00\x00half of it")
    signal.pause()


def refuses_at_once(connection, graphs, config):
    connection.send(("refused", DataError("client 0: nothing to train on")))


def breaks_on_an_order(connection, graphs, config):
    connection.recv()
    connection.send(("failed", "ZeroDivisionError: division by zero"))


def tells_its_blocked_signals(connection):
    connection.send(signal.pthread_sigmask(signal.SIG_BLOCK, []))


def everything(delta, norm, scores, round, slot, client):
    """An encoder that shows all that it was given."""
    return {"delta": delta, "norm": norm, "scores": dict(scores), "round": round, "slot": slot, "client": client}


def refuse_client_2(delta, norm, scores, round, slot, client):
    if client == 2:
        raise RangeError(f"round {round}, client {client}: too large")
    return slot, client


def divide_by_zero(delta, norm, scores, round, slot, client):
    return np.asarray([1, 2, 3])[client + 10]
