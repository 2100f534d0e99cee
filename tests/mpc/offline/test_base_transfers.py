"""What base transfers compute is the same for all choices; what they give is tested in `test_oblivious_transfer.py`."""

import numpy as np
import pytest

from mpc_programs.lockstep import run_pair
from orchestrator.mpc.offline import oblivious_transfer as ot
from orchestrator.mpc.offline.oblivious_transfer import BASE_TRANSFERS, base_transfers
from orchestrator.mpc.prg import Prg

NONE, ALL = np.zeros(BASE_TRANSFERS, np.uint8), np.ones(BASE_TRANSFERS, np.uint8)


class Recorder:
    """libsodium, and the names of its functions in the order of their calls."""

    def __init__(self, sodium):
        self.sodium, self.called = sodium, []

    def __getattr__(self, name):
        def record(*arguments):
            self.called.append(name)
            return getattr(self.sodium, name)(*arguments)

        return record


@pytest.fixture
def operations(monkeypatch):
    """``operations(choices)``: the group operations of both servers, in order, where one of them has these choices."""

    def run(choices):
        with monkeypatch.context() as patched:
            patched.setattr(ot, "sodium", recorder := Recorder(ot.sodium))
            run_pair(base_transfers(choices), base_transfers(NONE))
        return recorder.called

    return run


def test_the_group_operations_do_not_depend_on_the_choices(operations):
    expected = operations(NONE)
    assert expected.count("crypto_core_ed25519_add") == 2 * BASE_TRANSFERS
    for choices in (ALL, Prg().bits(BASE_TRANSFERS), ALL.astype(bool)):
        assert operations(choices) == expected


def test_a_selection_takes_the_chosen_ones():
    first, second = [bytes([k]) * 32 for k in (0, 1, 2, 255)], [bytes([k]) * 32 for k in (255, 254, 77, 0)]
    choices = np.array([0, 1, 1, 0], np.uint8)
    assert ot._select(choices, first, second) == [first[0], second[1], second[2], first[3]]
