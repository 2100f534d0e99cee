import numpy as np
import pytest

from orchestrator.mpc.prg import Prg, fresh_seed


def test_a_seed_determines_the_stream_and_fresh_seeds_differ():
    seed = fresh_seed()
    assert (Prg(seed).uint64(100) == Prg(seed).uint64(100)).all()
    assert Prg(seed).ring128(3) == Prg(seed).ring128(3)
    assert not (Prg().uint64(100) == Prg().uint64(100)).any()


def test_the_stream_is_read_from_front_to_back():
    seed = fresh_seed()
    prg = Prg(seed)
    assert prg.bytes(16) + prg.bytes(16) == Prg(seed).bytes(32)


def test_known_answer():
    """AES-128-CTR with key and counter zero: FIPS-197-style vector of the all-zero block."""
    assert Prg(bytes(16)).bytes(16).hex() == "66e94bd4ef8a2c3b884cfa59ca342b2e"


def test_bits_are_fair():
    bits = Prg().bits(100_001)
    assert bits.shape == (100_001,)
    assert abs(bits.mean() - 0.5) < 5 * 0.5 / np.sqrt(len(bits))


def test_a_seed_of_another_length_is_refused():
    with pytest.raises(ValueError, match="16 bytes"):
        Prg(b"short")
