"""The worker at its socket: who stalls is dropped, who is in line is served, and the folder is its owner's alone."""

from __future__ import annotations

import os
import socket
import time
from contextlib import suppress
from threading import Thread

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.agreement.site_file import SiteFile
from orchestrator.errors import BusyError, ConfigError, RunError
from orchestrator.site import framing
from orchestrator.site.messages import Hello, Refused, Welcome, parse_reply
from orchestrator.site.worker import open_site, serve

pytestmark = pytest.mark.usefixtures("one_thread")

SOON = 20.0


@pytest.fixture
def served(tmp_path):
    """``served(reply, patience_sec)``: the path of a socket that is served in a thread."""
    held = []

    def start(reply=bytes.upper, patience_sec=SOON):
        listener = socket.socket(socket.AF_UNIX)
        listener.bind(str(tmp_path / "s"))
        listener.listen(16)
        held.append(listener)

        def loop():
            with suppress(OSError):  # the test has ended
                serve(listener, reply, patience_sec)

        Thread(target=loop, daemon=True).start()
        return tmp_path / "s"

    yield start
    for listener in held:
        listener.shutdown(socket.SHUT_RDWR)
        listener.close()


def connected(path) -> socket.socket:
    connection = socket.socket(socket.AF_UNIX)
    connection.settimeout(SOON)
    connection.connect(str(path))
    return connection


def test_requests_are_answered_one_after_the_other_and_the_others_wait_in_line(served):
    path = served()
    waiting = [connected(path) for _ in range(8)]
    for k, connection in reversed([*enumerate(waiting)]):
        framing.send(connection, f"request {k}".encode(), time.monotonic() + SOON)
    for k, connection in enumerate(waiting):
        with connection:
            assert framing.receive(connection, time.monotonic() + SOON) == f"REQUEST {k}".encode()
            assert connection.recv(1) == b""
    assert framing.ask(path, b"x" * (3 << 20), SOON) == b"X" * (3 << 20)
    assert framing.ask(path, b"", SOON) == b""


@pytest.mark.parametrize("sent", [b"", b"\x01\x00", b"\x05\x00\x00\x00abc"])
def test_who_stalls_is_dropped_and_the_next_one_is_served(served, sent):
    path = served(patience_sec=0.2)
    with connected(path) as stalled:
        stalled.sendall(sent)
        assert framing.ask(path, b"next", SOON) == b"NEXT"
        assert stalled.recv(1) == b""


def test_who_does_not_take_its_reply_is_dropped(served):
    path = served(reply=lambda request: bytes(1 << 20) if request == b"much" else b"ok", patience_sec=0.2)
    with connected(path) as stalled:
        framing.send(stalled, b"much", time.monotonic() + SOON)
        assert framing.ask(path, b"next", 60.0) == b"ok"


def test_a_longer_request_than_there_may_be_is_not_read(served):
    def never(request):
        raise AssertionError("it was read")

    path = served(reply=never)
    with connected(path) as connection:
        connection.sendall((framing.LONGEST + 1).to_bytes(4, "little"))
        assert connection.recv(1) == b""
    with connected(path) as connection, pytest.raises(ValueError, match="expected at most"):
        framing.send(connection, _Long(), time.monotonic() + SOON)


class _Long(bytes):
    def __len__(self):
        return framing.LONGEST + 1


def test_nobody_waits_longer_than_it_says(tmp_path):
    silent = tmp_path / "silent"
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(silent))
        listener.listen(1)
        with pytest.raises(TimeoutError):
            framing.ask(silent, b"x", 0.2)


# What a worker keeps, and who may run one


def test_a_site_is_opened_once_and_leaves_no_socket(hospitals, tmp_path):
    site = SiteFile.read(hospitals.file("clinic-b", tmp_path))
    with open_site(site) as (worker, listener):
        assert worker.number == 1 and listener.getsockname() == str(site.socket)
        assert worker.described.startswith("site clinic-b: client 1 of 3 in trial, ")
        assert site.socket.stat().st_mode & 0o777 == 0o600
        assert (site.folder / "seed.key").stat().st_mode & 0o777 == 0o600
        assert site.folder.stat().st_mode & 0o777 == 0o700
        seed = (site.folder / "seed.key").read_bytes()
        with pytest.raises(BusyError, match="is writing to it"), open_site(site):
            pass
        assert site.socket.exists()
    assert not site.socket.exists()
    site.socket.touch()  # what a worker that was killed leaves
    with open_site(site):
        assert (site.folder / "seed.key").read_bytes() == seed
    (site.folder / "seed.key").write_bytes(b"short")
    with pytest.raises(RunError, match="is damaged"), open_site(site):
        pass


def test_seeds_of_two_sites_differ(hospitals, tmp_path):
    seeds = set()
    for name in ("clinic-a", "clinic-b"):
        site = SiteFile.read(hospitals.file(name, tmp_path))
        with open_site(site):
            seeds.add((site.folder / "seed.key").read_bytes())
    assert len(seeds) == 2


def test_a_folder_that_others_can_enter_is_refused(hospitals, tmp_path):
    site = SiteFile.read(hospitals.file("clinic-a", tmp_path))
    site.folder.mkdir()
    os.chmod(site.folder, 0o750)
    with pytest.raises(ConfigError, match="others than its owner can enter it; `chmod 700` it"), open_site(site):
        pass


def test_who_is_no_site_of_the_roster_runs_no_worker(hospitals, tmp_path):
    for name, text in (("hub", "hub is coordinator in trial, and no site"), ("uni-x", "uni-x is server 0")):
        identity = str(hospitals.folder / "keys" / name)
        site = SiteFile.read(hospitals.file("clinic-a", tmp_path / name, identity=identity))
        with pytest.raises(ConfigError, match=text), open_site(site):
            pass


def test_a_socket_whose_path_is_too_long_is_refused(hospitals, tmp_path):
    site = SiteFile.read(hospitals.file("clinic-a", tmp_path, socket="s" * 120))
    with pytest.raises(ConfigError, match="is too long for a socket's path"), open_site(site):
        pass


@pytest.mark.parametrize(
    ("changed", "text"),
    [
        ({"data": {"name": "own"}}, "a site's graph is read from files"),
        ({"data": {"name": "synthetic", "scaling": "pooled"}}, "nobody sees all sites' features"),
        (
            {"data": {"name": "files", "files": {"nodes": "n.csv", "edges": "e.csv", "label": "y", "client": "c"}}},
            "a site is one client",
        ),
        (
            {"data": {"name": "files", "dir": ".", "files": {"nodes": "n.csv", "edges": "e.csv", "label": "y"}}},
            "data.dir: paths of data.files are relative to this file",
        ),
        ({"ledger_limit": 0}, "ledger_limit"),
        ({"polcy": {}}, "polcy: unknown setting .did you mean policy"),
    ],
)
def test_a_sites_file_is_checked(hospitals, tmp_path, changed, text):
    with pytest.raises(ConfigError, match=text):
        SiteFile.read(hospitals.file("clinic-a", tmp_path, **changed))


@pytest.fixture(scope="module")
def kept(hospitals, tmp_path_factory):
    return hospitals.worker(tmp_path_factory.mktemp("kept"))


@given(st.binary(max_size=200))
def test_no_bytes_end_a_worker(kept, data):
    assert isinstance(parse_reply(kept.reply(data)), Refused | Welcome)
    assert isinstance(parse_reply(kept.reply(Hello().to_bytes())), Welcome)
