import json
from pathlib import Path

import numpy as np
import pytest

from mpc_programs.lockstep import run_pair
from orchestrator.mpc.offline import oblivious_transfer
from orchestrator.mpc.offline.oblivious_transfer import BASE_TRANSFERS, OtExtension, _transpose, base_transfers
from orchestrator.mpc.prg import Prg
from tests.vectors.generate_ot import BATCHES, TRANSFERS, bits, derived, scalar

VECTORS = json.loads((Path(__file__).parents[2] / "vectors" / "ot-1.json").read_text())


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


def finish(protocol, message):
    """Give a protocol its last message; what it returns."""
    with pytest.raises(StopIteration) as stopped:
        protocol.send(message)
    return stopped.value.value


def test_base_transfers_give_the_keys_of_an_independent_implementation(monkeypatch):
    """Sent messages too: what two versions must agree on."""
    case, scalars = VECTORS["base"], iter([scalar("own"), *(scalar("blind", i) for i in range(TRANSFERS))])
    monkeypatch.setattr(oblivious_transfer, "_scalar", lambda: next(scalars).to_bytes(32, "little"))
    protocol = base_transfers(np.array(bits(TRANSFERS, "choices"), np.uint8))
    assert protocol.send(None).hex() == case["sent"][0]
    assert protocol.send(bytes.fromhex(case["received"][0])).hex() == case["sent"][1]
    pairs, chosen = finish(protocol, bytes.fromhex(case["received"][1]))
    assert [[key.hex() for key in pair] for pair in pairs] == case["pairs"]
    assert [key.hex() for key in chosen] == case["chosen"]


@pytest.mark.parametrize("name", VECTORS["refused_points"])
def test_points_outside_the_group_are_refused(name):
    """A peer that sends a point with a part of small order learns of the scalar that it is multiplied by."""
    point, good = (bytes.fromhex(x) for x in (VECTORS["refused_points"][name], VECTORS["base"]["received"][0]))
    protocol = base_transfers(np.zeros(2, np.uint8))
    protocol.send(None)
    with pytest.raises(ValueError, match="outside the group"):
        protocol.send(point)
    protocol = base_transfers(np.zeros(2, np.uint8))
    protocol.send(None)
    protocol.send(good)
    with pytest.raises(ValueError, match="outside the group"):
        protocol.send(good + point)


def extended():
    """The batches of the vectors, as `OtExtension` makes them."""
    seeds = {name: [derived(name, i) for i in range(BASE_TRANSFERS)] for name in ("chosen", "zero", "one")}
    pairs = list(zip(seeds["zero"], seeds["one"], strict=True))
    party = OtExtension(np.array(bits(BASE_TRANSFERS, "secret"), np.uint8), seeds["chosen"], pairs)
    for batch, m in enumerate(BATCHES):
        protocol = party.extend(np.array(bits(m, "bits", batch), np.uint8))
        sent = protocol.send(None).hex()
        blocks = finish(protocol, derived("message", batch, size=16 * 8 * ((m + 7) // 8)))
        rows = [[row.astype("<u8").tobytes().hex() for row in part] for part in blocks]
        yield {"sent": sent, **dict(zip(("first", "second", "chosen"), rows, strict=True))}


def test_extension_gives_the_blocks_of_an_independent_implementation():
    assert list(extended()) == VECTORS["extension"]


@pytest.mark.parametrize("wrong", VECTORS["wrong_extensions"])
def test_extension_gives_no_block_of_a_hash_whose_tweak_is_dropped_or_begins_again(wrong):
    """From the second transfer, or the second batch, on: TMMO is secure for tweaks that differ."""
    for k, (found, bad) in enumerate(zip(extended(), VECTORS["wrong_extensions"][wrong], strict=True)):
        skipped = {"dropped": 0 if k else 1, "repeated": 0 if k else BATCHES[0]}[wrong]
        for name in ("first", "second", "chosen"):
            assert not set(found[name][skipped:]) & set(bad[name][skipped:])


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
