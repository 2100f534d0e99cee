from dataclasses import replace

import numpy as np
import pytest

from orchestrator.mpc.fixed_point import decode_scalars
from orchestrator.mpc.ring import signed128
from orchestrator.wire.envelope import Keypair, seal
from orchestrator.wire.message import Header
from orchestrator.wire.upload import share_update, unpack_upload
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


def test_an_update_that_meets_several_factors_has_a_mask_for_each_and_may_bring_a_key():
    update, key = np.arange(50, dtype=np.uint64), Keypair().public_key
    packed = share_update(update, [0.5], HEADERS, factors=3, reply_key=key)
    assert sum(map(len, packed)) <= 8 * (3 + 2) * 50 + 700
    both = [unpack_upload(packed[k], HEADERS[k], 50, 1, factors=3, answered=True) for k in (0, 1)]
    assert [upload.reply_key for upload in both] == [key, key]
    one, two = both[0].update, both[1].update
    masks = one.factor_masks + two.factor_masks
    assert len(set(masks)) == len(masks) == 3
    assert (one.masked - one.mask - two.mask == update).all()
    assert (one.products + two.products == masks[:, None] * (one.mask + two.mask)).all()
    assert decode_scalars(add128(both[0].scalars, both[1].scalars)) == pytest.approx([0.5])


def test_uploads_for_another_number_of_factors_or_without_a_key_are_refused():
    packed = share_update(np.zeros(4, np.uint64), [0.5], HEADERS, factors=3, reply_key=bytes(31))
    with pytest.raises(ValueError, match="'product' has 96 bytes, expected 64"):
        unpack_upload(packed[1], HEADERS[1], 4, 1, factors=2, answered=True)
    with pytest.raises(ValueError, match="'reply_key' has 31 bytes, expected 32"):
        unpack_upload(packed[0], HEADERS[0], 4, 1, factors=3, answered=True)
    assert unpack_upload(packed[0], HEADERS[0], 4, 1, factors=3).reply_key == b""
    plain = share_update(np.zeros(4, np.uint64), [0.5], HEADERS)
    with pytest.raises(ValueError, match="'reply_key' has 0 bytes"):
        unpack_upload(plain[0], HEADERS[0], 4, 1, answered=True)


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
