import numpy as np
import pytest

from mpc_programs.lockstep import run_pair
from orchestrator.mpc.offline.oblivious_transfer import BASE_TRANSFERS, OtExtension, _transpose, base_transfers
from orchestrator.mpc.prg import Prg


def both_extensions():
    (first, second), rounds, sent = run_pair(OtExtension.create(), OtExtension.create())
    assert rounds == 2
    assert sent == 32 + 32 * BASE_TRANSFERS
    return first, second


def test_base_transfers_give_the_chosen_seed_and_not_the_other():
    choices = [Prg().bits(BASE_TRANSFERS) for _ in range(2)]
    results, _, _ = run_pair(*(base_transfers(own) for own in choices))
    for sender, receiver in ((0, 1), (1, 0)):
        pairs, chosen = results[sender][0], results[receiver][1]
        for pair, seed, choice in zip(pairs, chosen, choices[receiver], strict=True):
            assert seed == pair[choice]
            assert seed != pair[1 - choice]
    assert len({seed for pairs, _ in results for pair in pairs for seed in pair}) == 4 * BASE_TRANSFERS


def test_points_outside_the_group_are_refused():
    protocol = base_transfers(np.zeros(BASE_TRANSFERS, np.uint8))
    protocol.send(None)
    with pytest.raises(ValueError, match="outside the group"):
        protocol.send(bytes(32))


@pytest.mark.parametrize("m", [0, 1, 8, 13, 1000, 40_000])
def test_extension_against_its_definition(m):
    parties = both_extensions()
    for _ in range(2):  # the streams go on
        choices = [Prg().bits(m) for _ in parties]
        results, rounds, sent = run_pair(*(p.extend(c) for p, c in zip(parties, choices, strict=True)))
        assert rounds == 1
        assert sent == 16 * 8 * ((m + 7) // 8)
        for sender, receiver in ((0, 1), (1, 0)):
            first, second, _ = results[sender]
            received, picked = results[receiver][2], choices[receiver].astype(bool)
            assert (received == np.where(picked[:, None], second, first)).all()
            assert not (received == np.where(picked[:, None], first, second)).all(axis=1).any()


def test_blocks_are_uniform_and_never_repeat():
    parties = both_extensions()
    zeros = np.zeros(4000, np.uint8)
    batches = [run_pair(*(p.extend(zeros) for p in parties))[0] for _ in range(2)]
    blocks = np.concatenate([part for result in batches for side in result for part in side[:2]])
    assert len({bytes(block) for block in blocks}) == len(blocks)
    ones = np.unpackbits(blocks.view(np.uint8)).mean()
    assert abs(ones - 0.5) < 5 * 0.5 / np.sqrt(blocks.size * 64)


def test_what_the_receiver_sends_hides_its_choices():
    """The same choices, all ones, over fresh sessions: every bit of the message is a fair coin."""
    seen = []
    for _ in range(12):
        protocol = both_extensions()[0].extend(np.ones(64, np.uint8))
        seen.append(np.unpackbits(np.frombuffer(protocol.send(None), np.uint8)))
    seen = np.array(seen)
    assert abs(seen.mean() - 0.5) < 5 * 0.5 / np.sqrt(seen.size)


def test_transpose():
    for m in (1, 9, 33_000):
        bits = Prg().bits(128 * m).reshape(128, m)
        blocks = _transpose(np.packbits(bits, axis=1, bitorder="little"), m)
        assert (bits == np.unpackbits(blocks.view(np.uint8), axis=1, bitorder="little").T).all()
