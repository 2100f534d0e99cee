"""What a site's ClientApp makes of a message."""

from __future__ import annotations

import os
import re
import socket
import struct
import subprocess
import sys
import threading
from contextlib import contextmanager

import pytest

pytest.importorskip("flwr", reason="needs safegnn[flower]")

from flwr.app import Context, Message, Metadata, RecordDict
from flwr.app.message import make_message

from orchestrator.errors import PeerLostError, PeerTimeoutError
from orchestrator.flower import client_app
from orchestrator.flower.parcel import packed, raised, unpacked
from tests.flower.federation import worker


def ask(content: RecordDict, kind: str = "query", ttl: float = 20.0, **config: str) -> RecordDict:
    metadata = Metadata(
        run_id=1, message_id="m", src_node_id=1, dst_node_id=2, reply_to_message_id="", group_id="",
        created_at=0.0, ttl=ttl, message_type=kind,
    )  # fmt: skip
    context = Context(run_id=1, node_id=2, node_config=config, state=RecordDict(), run_config={})
    message: Message = make_message(metadata, content=content)
    return client_app.app(message=message, context=context).content


@contextmanager
def once(path, behave):
    """A worker that does what the test says with its one connection."""
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(path))
        listening.listen()

        def serve():
            connection, _ = listening.accept()
            with connection:
                behave(connection)

        thread = threading.Thread(target=serve)
        thread.start()
        yield
        thread.join()


def test_a_node_says_its_site():
    assert unpacked(ask(packed(b""), "query.site", site="hospital-a")) == b"hospital-a"


@pytest.mark.parametrize("length", [0, 1, 5 * 2**20])
def test_a_request_reaches_the_worker_and_its_reply_returns(tmp_path, length):
    request = os.urandom(length)
    with worker(tmp_path / "w"):
        assert unpacked(ask(packed(request), socket=str(tmp_path / "w"))) == request


def hang_up(connection):
    connection.recv(4)


def half(connection):
    connection.recv(100)
    connection.sendall(struct.pack("<I", 10) + b"half")


def boast(connection):
    connection.recv(100)
    connection.sendall(struct.pack("<I", 2**31))


@pytest.mark.parametrize(
    ("behave", "reason"), [(hang_up, "ended early|reset"), (half, "ended early|reset"), (boast, "2147483648 bytes")]
)
def test_a_worker_that_fails_is_a_typed_reply(tmp_path, behave, reason):
    with once(tmp_path / "w", behave):
        error = raised(ask(packed(b"x"), socket=str(tmp_path / "w")), "a")

    assert isinstance(error, PeerLostError)
    assert re.search(reason, error.reason)


def test_a_silent_worker_costs_as_long_as_the_message_lives(tmp_path):
    end = threading.Event()
    with once(tmp_path / "w", lambda connection: end.wait(20)):
        error = raised(ask(packed(b"x"), ttl=0.2, socket=str(tmp_path / "w")), "a")
        end.set()

    assert isinstance(error, PeerTimeoutError)


def test_a_node_without_a_socket_or_worker_says_so(tmp_path):
    for config, reason in (({}, "socket=..."), ({"socket": str(tmp_path / "none")}, "No such file")):
        error = raised(ask(packed(b"x"), **config), "a")
        assert isinstance(error, PeerLostError)
        assert reason in error.reason
        assert str(tmp_path) not in error.reason


def test_a_message_that_is_no_parcel_does_not_reach_the_worker(tmp_path):
    heard = []
    with once(tmp_path / "w", lambda connection: heard.append(connection.recv(100))):
        error = raised(ask(RecordDict(), socket=str(tmp_path / "w")), "a")
        with socket.socket(socket.AF_UNIX) as first:
            first.connect(str(tmp_path / "w"))
            first.sendall(b"the test's own")

    assert isinstance(error, PeerLostError)
    assert heard == [b"the test's own"]


def test_a_client_app_imports_nothing_that_trains():
    code = "import sys, orchestrator.flower.client_app; print(*sorted(sys.modules))"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()

    assert not {"torch", "pandas", "scipy", "sklearn", "opendp", "pydantic"} & set(loaded)
    assert [name for name in loaded if name.startswith("orchestrator.")] == [
        "orchestrator.errors",
        "orchestrator.flower",
        "orchestrator.flower.client_app",
        "orchestrator.flower.parcel",
        "orchestrator.site",
        "orchestrator.site.framing",
    ]
