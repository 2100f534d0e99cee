from dataclasses import replace

import numpy as np
import pytest

from orchestrator.sharing.envelope import Keypair, seal
from orchestrator.sharing.fixed_point import decode_scalars
from orchestrator.sharing.message import Header
from orchestrator.sharing.ring import signed128
from orchestrator.sharing.upload import share_update, unpack_upload
from tests.support import add128

HEADERS = [Header(bytes(16), 3, 1, 17, server) for server in (0, 1)]


def uploads(update, scores):
    packed = share_update(update, scores, HEADERS)
    return packed, [unpack_upload(packed[k], HEADERS[k], len(update), len(scores)) for k in (0, 1)]


def test_both_parts_together_hold_the_update_and_its_correlation():
    update = np.arange(50, dtype=np.uint64) - np.uint64(25)
    _, (first, second) = uploads(update, [0.5, 1.25])
    one, two = first.update, second.update
    mask = one.mask + two.mask
    assert (one.masked == two.masked).all()
    assert (one.masked - mask == update).all()
    assert (one.products + two.products == (one.factor_masks + two.factor_masks)[:, None] * mask).all()
    assert decode_scalars(add128(first.scalars, second.scalars)) == pytest.approx([0.5, 1.25])


def test_size():
    d = 10_000
    packed, _ = uploads(np.zeros(d, dtype=np.uint64), [0.0, 0.0, 0.0])
    assert sum(map(len, packed)) <= 3 * 8 * d + 1000


@pytest.mark.parametrize("field", ["run", "round", "slot", "client", "server"])
def test_an_upload_for_something_else_is_refused_by_name(field):
    packed, _ = uploads(np.zeros(4, dtype=np.uint64), [0.0])
    other = replace(HEADERS[0], **{field: bytes([1] * 16) if field == "run" else 1 + getattr(HEADERS[0], field)})
    with pytest.raises(ValueError, match=f"another {field}"):
        unpack_upload(packed[0], other, 4, 1)


def test_malformed_uploads_are_refused():
    packed, _ = uploads(np.zeros(4, dtype=np.uint64), [0.0])
    with pytest.raises(ValueError, match="format"):
        unpack_upload(packed[0][:20], HEADERS[0], 4, 1)
    with pytest.raises(ValueError, match="'masked' has 32 bytes, expected 40"):
        unpack_upload(packed[0], HEADERS[0], 5, 1)
    with pytest.raises(ValueError, match="'scalars' has 16 bytes, expected 32"):
        unpack_upload(packed[1], HEADERS[1], 4, 2)


def test_only_the_addressed_server_opens_an_envelope():
    mine, other = Keypair(), Keypair()
    envelope = seal(b"secret", mine.public_key)
    assert mine.open(envelope) == b"secret"
    assert b"secret" not in envelope
    damaged = envelope[:-1] + bytes([envelope[-1] ^ 1])
    for keypair, data in ((other, envelope), (mine, damaged), (mine, envelope[:10])):
        with pytest.raises(ValueError, match="damaged or sealed to another"):
            keypair.open(data)


@pytest.mark.parametrize(("program", "bytes_per_element"), [("scalar-first", 8), ("faithful", 16)])
def test_plain_shares_of_the_update(program, bytes_per_element):
    update = np.arange(1000, dtype=np.uint64) - np.uint64(500)
    packed = share_update(update, [0.5], HEADERS, program)
    assert sum(map(len, packed)) <= bytes_per_element * 1000 + 600
    first, second = (unpack_upload(packed[k], HEADERS[k], 1000, 1, program).update for k in (0, 1))
    if program == "scalar-first":
        assert (first + second == update).all()
    else:
        assert signed128(add128(first, second)) == list(range(-500, 500))
    with pytest.raises(ValueError, match="'share' has"):
        unpack_upload(packed[1], HEADERS[1], 999, 1, program)
