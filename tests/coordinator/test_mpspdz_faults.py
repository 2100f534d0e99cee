"""Real parties that die or stop in the middle of a run, and two engines at the same time."""

from __future__ import annotations

import os
import select
import signal
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

from orchestrator.coordinator.mpspdz import MpSpdzEngine
from orchestrator.errors import PeerLostError, PeerTimeoutError
from orchestrator.mpspdz.installation import PROTOCOLS, Installation
from tests.coordinator.test_mpspdz import wait_for_end
from tests.coordinator.test_mpspdz_rounds import FORMAT, cohorts, parameters, play
from tests.support import engine_of

RULE = parameters(3)
LENGTH = 22_000  # seconds of work for `faithful`


@pytest.fixture
def announced(installation, tmp_path):
    """An installation whose parties say their process ids, and ``pid(index)``, which waits for that."""
    home = tmp_path / "home"
    home.mkdir()
    for name in ("compile.py", "CHANGELOG.md", "Player-Data"):
        (home / name).symlink_to(installation.home / name)
    os.mkfifo(home / "pids")
    for protocol in PROTOCOLS:
        path = home / f"{protocol}-party.x"
        path.write_text(f'#!/bin/sh\necho "$2 $$" > {home}/pids\nexec {installation.binary(protocol)} "$@"\n')
        path.chmod(0o755)
    handle = os.open(home / "pids", os.O_RDWR)

    def pids(count):
        text = b""
        while text.count(b"\n") < count:
            text += os.read(handle, 200)
        return dict(tuple(map(int, line.split())) for line in text.splitlines())

    yield Installation(home), pids
    os.close(handle)


def work(pid, seconds):
    """Wait until a process has used so much processor time, or has ended."""
    handle = os.pidfd_open(pid)
    ticks = os.sysconf("SC_CLK_TCK") * seconds
    stat = Path(f"/proc/{pid}/stat")
    while sum(map(int, stat.read_text().rpartition(")")[2].split()[11:13])) < ticks:
        if select.select([handle], [], [], 0.02)[0]:
            break
    os.close(handle)


@pytest.mark.parametrize(
    ("protocol", "index", "peer", "name"),
    [
        ("semi2k", 0, "server 0", "SIGKILL"),
        ("semi2k", 1, "server 1", "SIGKILL"),
        ("semi2k", 1, "server 1", "SIGSTOP"),
        ("dealer-ring", 0, "server 0", "SIGKILL"),
        ("dealer-ring", 2, "dealer", "SIGKILL"),
        ("dealer-ring", 2, "dealer", "SIGSTOP"),
    ],
)
def test_a_party_that_dies_or_stops_is_named(announced, cache, protocol, index, peer, name):
    installation, pids = announced
    stops = name == "SIGSTOP"
    with (
        engine_of(
            MpSpdzEngine,
            RULE,
            FORMAT,
            protocol=protocol,
            program="faithful",
            home=installation.home,
            cache=cache,
            clip_norm=1.0,
            timeout_sec=6.0 if stops else 60.0,
        ) as struck,
        pytest.raises(PeerTimeoutError if stops else PeerLostError) as caught,
    ):
        struck.start(np.zeros(LENGTH))

        def strike():
            found.update(pids(PROTOCOLS[protocol].parties))
            work(found[index], 0.3 if protocol == "semi2k" else 0.02)
            os.kill(found[index], getattr(signal, name))

        found: dict[int, int] = {}
        striker = threading.Thread(target=strike)
        striker.start()
        try:
            play(struck, 1, next(iter(cohorts(RULE, LENGTH))))
        finally:
            striker.join()
    assert (caught.value.peer, caught.value.phase, caught.value.round) == (peer, "online", 1), caught.value
    for pid in found.values():
        wait_for_end(pid)


def test_two_engines_at_the_same_time_do_not_disturb_each_other(installation, cache):
    def train(protocol):
        with engine_of(
            MpSpdzEngine,
            RULE,
            FORMAT,
            protocol=protocol,
            home=installation.home,
            cache=cache,
            clip_norm=1.0,
            timeout_sec=60.0,
        ) as engine:
            engine.start(np.zeros(40))
            return [play(engine, number, uploads).parameters for number, uploads in enumerate(cohorts(RULE), start=1)]

    with ThreadPoolExecutor() as pool:
        runs = list(pool.map(train, ("semi2k", "dealer-ring", "semi2k")))
    for other in runs[1:]:
        assert np.abs(np.array(other) - runs[0]).max() < 1e-6
