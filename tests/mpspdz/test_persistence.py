"""Share files against golden ones that MP-SPDZ wrote, byte for byte, and every way in which a file can be wrong."""

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.mpspdz.persistence import header, integers, read_shares, words, write_shares

RECORDED = Path(__file__).with_name("recorded")
SECRETS = [1.0, 1.0, 4.5, 6.0, 7.5, 1.0, 27.0]
"""What the program that wrote the golden files wrote, with 16 fractional bits."""


def golden(ring_bits, party):
    return RECORDED / f"shares-{ring_bits}-P{party}.data"


@pytest.mark.parametrize("ring_bits", [64, 128])
def test_golden_shares_add_up_to_what_was_written(ring_bits):
    first, second = (integers(read_shares(golden(ring_bits, party), ring_bits, 0, 7)) for party in (0, 1))
    assert [(x + y) % (1 << ring_bits) / 2**16 for x, y in zip(first, second, strict=True)] == SECRETS


@pytest.mark.parametrize("ring_bits", [64, 128])
def test_what_is_written_is_byte_for_byte_what_mpspdz_writes(tmp_path, ring_bits):
    for party in (0, 1):
        shares = read_shares(golden(ring_bits, party), ring_bits, 0, 7)
        write_shares(tmp_path / "copy", shares)
        assert (tmp_path / "copy").read_bytes() == golden(ring_bits, party).read_bytes()


@pytest.mark.parametrize("ring_bits", [64, 128])
@given(values=st.lists(st.integers(-(1 << 127), (1 << 127) - 1)))
def test_words_keep_every_value_modulo_the_ring(ring_bits, values):
    assert integers(words(values, ring_bits)) == [value % (1 << ring_bits) for value in values]


def test_parts_are_read_from_where_they_stand(tmp_path):
    path = tmp_path / "Persistence" / "shares"
    write_shares(path, words([-1, 0, 1 << 127, 5], 128))
    assert integers(read_shares(path, 128, 1, 2)) == [0, 1 << 127]
    assert read_shares(path, 128, 4, 0).shape == (0, 2)


def test_long_vectors_take_no_loop(tmp_path):
    values = np.arange(1_000_000, dtype=np.uint64).reshape(-1, 1)
    write_shares(tmp_path / "long", values)
    assert (read_shares(tmp_path / "long", 64, 10, 999_990) == values[10:]).all()


@pytest.mark.parametrize(
    ("content", "text"),
    [
        (header(64) + bytes(64), r"holds shares in Z_2\^64, expected shares in Z_2\^128"),
        (header(128) + bytes(47), "ends after 2 shares, expected 3"),
        (header(128)[:-1], "holds shares in Z_2"),
        (b"", "is empty or truncated"),
        (b"\x09\0\0\0\0\0\0\0gf2n_lon" + bytes(40), "is no file of shares in a ring"),
    ],
)
def test_a_wrong_file_is_refused_by_name(tmp_path, content, text):
    path = tmp_path / "Transactions-P0.data"
    path.write_bytes(content)
    with pytest.raises(ValueError, match=rf"Transactions-P0\.data: .*{text}"):
        read_shares(path, 128, 0, 3)


def test_a_missing_file_is_refused_by_name(tmp_path):
    with pytest.raises(ValueError, match=r"Transactions-P1\.data: cannot be read \(No such file"):
        read_shares(tmp_path / "Transactions-P1.data", 64, 0, 1)


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="this system has no /dev/full")
def test_a_full_disk_is_named(tmp_path):
    (tmp_path / "Transactions-P0.data").symlink_to("/dev/full")
    with pytest.raises(OSError, match=r"No space left on device: '.*Transactions-P0\.data'"):
        write_shares(tmp_path / "Transactions-P0.data", words([1], 64))
