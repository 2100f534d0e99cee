"""A party's process: its folder, its end, and everything that can go wrong, on stand-ins."""

import os
import resource
import signal
import socket
import threading
from pathlib import Path

import pytest

from mpc_programs.rules import RoundParameters
from orchestrator.errors import ConfigError
from orchestrator.mpspdz.compiler import compile_program
from orchestrator.mpspdz.party import Party, PartyError, PortInUseError
from orchestrator.mpspdz.shape import Shape
from tests.mpspdz_standin import write_party

RECORDED = Path(__file__).with_name("recorded")
SHAPE = Shape("assisted", "semi2k", RoundParameters("f2gnn", 3, ratio_max=8.0), 100)


@pytest.fixture
def party(standin, tmp_path):
    (tmp_path / "scratch").mkdir()
    with Party(standin, SHAPE, compile_program(standin, SHAPE, tmp_path / "cache"), 1, tmp_path / "scratch") as party:
        yield party


def say(name):
    return f"print(Path({str(RECORDED / name)!r}).read_text(), flush=True)"


def test_a_party_runs_in_a_folder_of_its_own(party):
    write_party(
        party.installation.home, f"Path('arguments').write_text(' '.join(sys.argv[1:]))\n{say('semi2k-128-P0.txt')}"
    )
    cost = party.run("localhost", 5000, 20.0)
    assert (cost.online_bytes, cost.online_rounds) == (208, 8)
    given = (party.folder / "arguments").read_text()
    assert given == (
        "-p 1 -N 2 -pn 5000 -h localhost -v -R 128 -o no_memory_output -E 40 -e assisted-3-0-f2gnn-0.5-4.0-2.0-8.0"
    )
    present = {path.name for path in (party.folder / "Player-Data").iterdir()}
    assert {"P0.pem", "P1.pem", "P1.key"} <= present
    assert not present & {"P0.key", "P2.key"}  # another party's key is none of its business
    assert (party.folder / "Programs" / "Schedules").is_dir()


def test_nothing_is_left_behind(party):
    folder = party.folder
    party.__exit__()
    assert not folder.exists()
    party.__enter__()


def test_a_party_that_fails_is_reported_with_its_last_lines(party):
    write_party(party.installation.home, f"{say('semi2k-peer-killed.txt')}\nraise SystemExit(1)")
    with pytest.raises(PartyError, match=r"status 1: .* another party encountered a problem"):
        party.run("localhost", 5000, 20.0)


@pytest.mark.parametrize(
    ("said", "blamed"),
    [
        ("read_some: stream truncated\nThis is probably because party 2 encountered a problem.", "2"),
        ("terminate called after throwing an instance\n  what():  read_some: stream truncated", "other"),
        ("This is probably because another party encountered a problem.", "other"),
        ("what():  Connection closed down. This is most likely due to a problem on the other side.", "other"),
        ("SSL error: handshake: stream truncated [asio.ssl.stream:1]", "other"),
        ("SSL error: handshake: sslv3 alert certificate expired (SSL routines)", "own"),
        ("Fatal error at ro-0:3 (READFILESHARE): Error while reading from persistence file.", "own"),
    ],
)
def test_a_party_says_whose_fault_it_was(party, said, blamed):
    write_party(party.installation.home, f"print({said!r})\nraise SystemExit(1)")
    with pytest.raises(PartyError) as caught:
        party.run("localhost", 5000, 20.0)
    assert (caught.value.blamed, caught.value.stalled) == (blamed, False)


def test_a_killed_party_is_reported_by_its_signal(party):
    write_party(party.installation.home, "os.kill(os.getpid(), 9)")
    with pytest.raises(PartyError, match=r"ended with signal 9$"):
        party.run("localhost", 5000, 20.0)


def test_a_stalled_party_is_ended(party):
    write_party(
        party.installation.home, "Path('pid').write_text(str(os.getpid()))\nprint('hm', flush=True)\nsignal.pause()"
    )
    with pytest.raises(PartyError, match=r"took more than 1 s \(engine\.timeout_sec\): hm") as caught:
        party.run("localhost", 5000, 1.0)
    assert (caught.value.blamed, caught.value.stalled) == ("other", True)  # it sleeps: it may wait for another one
    with pytest.raises(ProcessLookupError):
        os.kill(int((party.folder / "pid").read_text()), signal.SIGCONT)


def test_a_busy_port_is_no_reason_to_try_for_ever(party):
    write_party(party.installation.home, f"{say('semi2k-port-in-use.txt')}\nsignal.pause()")
    with pytest.raises(PortInUseError, match="a port from 5000 to 5001 is in use"):
        party.run("localhost", 5000, 20.0)


def test_a_party_ends_when_nobody_waits_for_it(party):
    write_party(party.installation.home, "print('here', flush=True)\nsignal.pause()")
    left, right = socket.socketpair()
    threading.Timer(0.05, right.close).start()

    def abandon():
        raise PartyError("nobody waits")

    with left, pytest.raises(PartyError, match="nobody waits"):
        party.run("localhost", 5000, 20.0, {left: abandon})


def test_an_end_without_costs_is_no_result(party):
    write_party(party.installation.home, "print('done')")
    with pytest.raises(PartyError, match="expected one line 'Spent"):
        party.run("localhost", 5000, 20.0)


def test_a_missing_binary_is_one_clear_line(party):
    (party.installation.home / "semi2k-party.x").unlink()
    with pytest.raises(ConfigError, match=r"semi2k-party\.x is missing"):
        party.run("localhost", 5000, 20.0)


def test_more_than_a_thousand_open_files_are_none_too_many(party):
    """`select` takes no descriptor above 1,023."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY and hard < 2048:
        pytest.skip(f"this system allows {hard} open files only")
    write_party(party.installation.home, say("semi2k-128-P0.txt"))
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, 2048), hard))
    files = [os.open(os.devnull, os.O_RDONLY) for _ in range(1100)]
    try:
        assert party.run("localhost", 5000, 20.0).online_rounds == 8
    finally:
        for file in files:
            os.close(file)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
