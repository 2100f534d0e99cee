"""Ports in a row that nobody listens on."""

import socket

import pytest

from orchestrator.mpspdz import ports
from orchestrator.mpspdz.ports import free_ports, is_free


def test_a_listening_socket_is_seen():
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        assert not is_free(taken.getsockname()[1])


def test_ports_lie_in_a_row_below_those_of_outgoing_connections():
    base = free_ports(3)
    assert 10_000 <= base < 32_000
    assert all(map(is_free, range(base, base + 3)))


def test_a_full_machine_is_an_error(monkeypatch):
    monkeypatch.setattr(ports, "is_free", lambda port: port % 2)
    with pytest.raises(OSError, match="no 2 free ports in a row"):
        free_ports(2)
