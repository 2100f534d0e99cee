"""Servers and their parties, on stand-ins: a round works, and whatever goes wrong is one error that names the peer.

The stand-ins compute the mean, which needs no secret: 1/q is public.
"""

from __future__ import annotations

import os
import select
import shutil
import signal
import subprocess
import sys
import threading
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import pytest

from mpc_programs.rules import RoundParameters
from orchestrator.coordinator.mpspdz import MpSpdzEngine
from orchestrator.errors import ConfigError, PeerLostError, PeerTimeoutError
from orchestrator.methods.base import LocalUpdate
from orchestrator.mpc.fixed_point import VectorFormat
from orchestrator.mpspdz import scratch
from orchestrator.wire.message import Place
from tests.mpspdz_standin import MEAN, write_certificate, write_party
from tests.support import engine_of

FORMAT = VectorFormat(25, 32, 6)
MODEL = np.linspace(-1, 1, 8)
RULE = RoundParameters("fedavg", 2)


@pytest.fixture
def engine(standin, tmp_path, monkeypatch):
    """``engine("semi2k", "body of a party", timeout_sec=4)``; every folder of share files lies in `tmp_path`."""
    monkeypatch.setattr(scratch, "_MEMORY", tmp_path / "shm")
    (tmp_path / "shm").mkdir()

    def build(protocol="semi2k", body="result()", **options):
        write_party(standin.home, MEAN + body, protocol)
        return engine_of(
            MpSpdzEngine,
            RULE,
            FORMAT,
            protocol=protocol,
            home=standin.home,
            cache=tmp_path / "cache",
            **{"timeout_sec": 20.0, **options},
        )

    return build


def play(running, number=1):
    for slot in range(2):
        sealed = running.encoder(LocalUpdate(np.full(8, 0.25 + slot), 4.0, {}), Place(number, slot, slot))
        running.submit(number, slot, slot, sealed)
    return running.aggregate(number, [0, 1])


def play_from_start(running):
    running.start(MODEL)
    return play(running)


def wait_for_end(pid, timeout_sec=20.0):
    """Until a process, somebody else's child, has ended."""
    try:
        handle = os.pidfd_open(pid)
    except ProcessLookupError:
        return
    try:
        assert select.select([handle], [], [], timeout_sec)[0], f"process {pid} still runs"
    finally:
        os.close(handle)


@pytest.mark.parametrize("protocol", ["semi2k", "dealer-ring"])
def test_rounds_follow_each_other_and_leave_no_files(engine, tmp_path, protocol):
    with engine(protocol) as running:
        running.start(MODEL)
        model = MODEL
        for number in (1, 2):
            result = play(running, number)
            model = model - 0.75
            assert np.abs(result.parameters - model).max() < 1e-6
            assert result.cost.online_bytes[0] >= 208 and result.cost.rounds > 8
            dealt = 34_568 // 2 if protocol == "dealer-ring" else 0
            assert result.cost.preprocessing_bytes == (13_993 + dealt,) * 2
            assert result.cost.startup_seconds > 0
        [folder] = (tmp_path / "shm").iterdir()
        assert folder.stat().st_mode & 0o777 == 0o700
        assert list(folder.iterdir()) == []
    assert list((tmp_path / "shm").iterdir()) == []


def test_the_dealers_party_is_given_no_share(engine, standin):
    found = 'files = sorted(file.name for file in Path.cwd().rglob("*") if "Transactions" in file.name)\n'
    with engine("dealer-ring", found + '(home / f"found-{index}").write_text(" ".join(files))\nresult()') as running:
        play_from_start(running)
    shares = [(standin.home / f"found-{index}").read_text() for index in range(3)]
    assert shares == ["Transactions-P0.data", "Transactions-P1.data", ""]


def test_without_room_in_memory_files_lie_in_the_temporary_folder(tmp_path, monkeypatch):
    monkeypatch.setattr(scratch.tempfile, "tempdir", str(tmp_path))
    monkeypatch.setattr(scratch, "_MEMORY", tmp_path / "missing")
    assert scratch.private_folder(10).parent == tmp_path
    (tmp_path / "memory").mkdir()
    monkeypatch.setattr(scratch, "_MEMORY", tmp_path / "memory")
    assert scratch.private_folder(10).parent == tmp_path / "memory"
    assert scratch.private_folder(1 << 60).parent == tmp_path


@pytest.mark.parametrize(
    ("protocol", "index", "peer", "death", "reason"),
    [
        ("semi2k", 0, "server 0", "SIGKILL", "ended with signal 9"),
        ("semi2k", 1, "server 1", "SIGKILL", "ended with signal 9"),
        ("dealer-ring", 1, "server 1", "SIGKILL", "ended with signal 9"),
        ("dealer-ring", 2, "dealer", "SIGKILL", "ended with signal 9"),
        ("semi2k", 1, "server 1", "SIGSTOP", "took more than 3 s"),
        ("dealer-ring", 2, "dealer", "SIGSTOP", "took more than 3 s"),
    ],
)
def test_a_killed_or_stopped_party_names_its_server(engine, tmp_path, protocol, index, peer, death, reason):
    body = f"if index == {index}:\n    os.kill(os.getpid(), signal.{death})\nsignal.pause()"
    kind = PeerLostError if death == "SIGKILL" else PeerTimeoutError
    with engine(protocol, body, timeout_sec=3.0) as struck, pytest.raises(kind, match=reason) as caught:
        play_from_start(struck)
    assert (caught.value.peer, caught.value.phase, caught.value.round) == (peer, "online", 1)
    assert list((tmp_path / "shm").iterdir()) == []


@pytest.mark.parametrize(("protocol", "index"), [("semi2k", 0), ("semi2k", 1), ("dealer-ring", 2)])
def test_a_port_in_use_is_avoided(engine, standin, protocol, index):
    """The party that finds its port taken would try for ever; all are started again on other ports."""
    body = f"""
port = sys.argv[sys.argv.index("-pn") + 1]
with open(home / "ports", "a") as log:
    log.write(port + chr(10))
if port == (home / "ports").read_text().split()[0]:
    if index == {index}:
        say("semi2k-port-in-use.txt")
    signal.pause()
result()"""
    with engine(protocol, body) as running:
        assert np.abs(play_from_start(running).parameters - MODEL + 0.75).max() < 1e-6
    assert len(set((standin.home / "ports").read_text().split())) >= 2


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        ("result(ring_bits=64)", r"holds shares in Z_2\^64, expected shares in Z_2\^128"),
        ("say('semi2k-128-P0.txt')", "ends after 0 shares, expected 2"),
        ("result()\nsay('semi2k-128-P0.txt')", "expected one line 'Spent"),
        ("say('dealer-ring-expired.txt')\nraise SystemExit(1)", "certificate expired"),
    ],
)
def test_a_party_without_a_result_is_one_line(engine, body, reason):
    with engine(body=body) as struck, pytest.raises(PeerLostError, match=rf"server \d: MP-SPDZ: .*{reason}"):
        play_from_start(struck)


def test_a_lost_peer_is_blamed_instead_of_the_witness(engine):
    body = "if index == 0:\n    say('semi2k-peer-killed.txt')\nraise SystemExit(1)"
    with engine(body=body) as struck, pytest.raises(PeerLostError, match=r"server 1: MP-SPDZ: ended with status 1"):
        play_from_start(struck)


def test_certificates_that_expire_between_rounds_are_named(engine, standin):
    with engine() as running:
        running.start(MODEL)
        write_certificate(standin.certificates, 1, datetime(2024, 5, 1, tzinfo=UTC))
        with pytest.raises(PeerLostError, match=r"round 1, .*P1\.pem expired on 2024-05-01; run `Scripts/setup-ssl"):
            play(running)


def test_a_binary_that_goes_between_rounds_is_named(engine, standin):
    with engine() as running:
        running.start(MODEL)
        (standin.home / "semi2k-party.x").unlink()
        with pytest.raises(PeerLostError, match=r"semi2k-party\.x is missing; run Scripts/tldr\.sh"):
            play(running)


def test_a_full_disk_is_named(engine):
    command = [sys.executable, str(Path(__file__).parents[1] / "mpspdz" / "faulty.py")]
    with (
        engine(commands={"server 1": command}) as struck,
        pytest.raises(PeerLostError, match=r"server 1: MP-SPDZ: .*Transactions-P1\.data: No space left on device"),
    ):
        play_from_start(struck)


@pytest.mark.parametrize(
    ("damage", "reason"),
    [
        (lambda home: shutil.rmtree(home / "Player-Data"), r"P0\.pem is missing; run `Scripts/setup-ssl\.sh 2`"),
        (lambda home: (home / "semi2k-party.x").unlink(), r"semi2k-party\.x is missing"),
        (lambda home: (home / "compile.py").unlink(), "no installation at"),
    ],
)
def test_an_incomplete_installation_is_refused_before_anything_starts(standin, damage, reason):
    damage(standin.home)
    with pytest.raises(ConfigError, match=reason):
        engine_of(MpSpdzEngine, RULE, FORMAT, home=standin.home)


def test_programs_that_cannot_compute_what_is_asked_are_refused_by_name(standin):
    wide = RoundParameters("f2gnn", 2, fairness_max=1e5)
    with pytest.raises(ConfigError, match=r"method\.score_max = 100000: 'faithful' on MP-SPDZ .* at most 8192"):
        engine_of(MpSpdzEngine, wide, FORMAT, program="faithful", home=standin.home)
    with pytest.raises(ConfigError, match=r"sharing\.weight_bits: scalar-first"):
        engine_of(MpSpdzEngine, wide, VectorFormat(30, 20, 6), program="scalar-first", home=standin.home)


REPORT_AND_HANG = """
with open(home / "pids", "w") as pipe:
    pipe.write(f"{index} {os.getpid()}" + chr(10))
signal.pause()"""


@pytest.fixture
def pids(standin):
    """``pids(n)``: the ids of n parties that run `REPORT_AND_HANG`; waits until they have said them."""
    os.mkfifo(standin.home / "pids")
    handle = os.open(standin.home / "pids", os.O_RDWR)  # also for writing, so that one party's end is not the end

    def read(count):
        text = b""
        while text.count(b"\n") < count:
            text += os.read(handle, 100)
        return [int(line.split()[1]) for line in text.splitlines()]

    yield read
    os.close(handle)


def test_a_killed_server_leaves_neither_its_party_nor_its_files(engine, pids, tmp_path):
    with engine(body=REPORT_AND_HANG) as struck:
        struck.start(MODEL)

        def kill():
            found.extend(pids(2))
            os.kill(struck.pids["server 0"], signal.SIGKILL)

        found: list[int] = []
        killer = threading.Thread(target=kill)
        killer.start()
        with pytest.raises(PeerLostError) as caught:
            play(struck)
        killer.join()
    assert (caught.value.peer, caught.value.round) == ("server 0", 1)
    for pid in found:
        wait_for_end(pid)
    assert list((tmp_path / "shm").iterdir()) == []


PLAY = """
import sys
from pathlib import Path
from orchestrator.mpspdz import scratch
from orchestrator.wire.message import Place
from orchestrator.methods.base import LocalUpdate
from tests.coordinator.test_mpspdz import FORMAT, RULE, MpSpdzEngine, engine_of, play_from_start
if __name__ == "__main__":
    home, folder = map(Path, sys.argv[1:])
    scratch._MEMORY = folder / "shm"
    with engine_of(MpSpdzEngine, RULE, FORMAT, home=home, cache=folder / "cache", timeout_sec=60.0) as running:
        play_from_start(running)
"""


@pytest.mark.parametrize("name", ["SIGINT", "SIGKILL"])
def test_an_interrupted_coordinator_leaves_no_process(standin, pids, tmp_path, name):
    write_party(standin.home, MEAN + REPORT_AND_HANG)
    (tmp_path / "shm").mkdir()
    process = subprocess.Popen(
        [sys.executable, "-c", PLAY, str(standin.home), str(tmp_path)],
        cwd=Path(__file__).parents[2],
        stderr=subprocess.DEVNULL,
        start_new_session=True,
        # A shell lets what it starts in the background ignore Ctrl-C, and that is inherited.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )
    with process:
        found = pids(2)
        os.killpg(process.pid, getattr(signal, name))
        for pid in found:
            wait_for_end(pid)
    assert process.returncode == -getattr(signal, name)
    assert name == "SIGKILL" or list((tmp_path / "shm").iterdir()) == []
