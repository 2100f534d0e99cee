from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mpc_programs.rules import RoundParameters
from orchestrator.mpc.fixed_point import decode_scalars
from orchestrator.mpc.ring import signed128
from orchestrator.wire.envelope import SEAL_BYTES, Keypair, seal
from orchestrator.wire.message import HEADER_BYTES, Header, pack
from orchestrator.wire.upload import DIGEST_BYTES, Layout, share_update, unpack_upload
from tests.support import add128

HEADERS = [Header(bytes(16), 3, 1, 17, server) for server in (0, 1)]
KEY = Keypair().public_key


def uploads(update, scores, layout=None, key=b""):
    layout = layout or Layout("assisted", len(update), len(scores))
    packed = share_update(update, scores, HEADERS, layout, key)
    assert [len(part) + SEAL_BYTES for part in packed] == [layout.envelope_bytes(k) for k in (0, 1)]
    return packed, [unpack_upload(packed[k], HEADERS[k], layout) for k in (0, 1)]


def test_both_parts_together_hold_the_update_and_its_correlation():
    update = np.arange(50, dtype=np.uint64) - np.uint64(25)
    _, (first, second) = uploads(update, [0.5, 1.25])
    one, two = first.update, second.update
    assert (one.share + two.share == update).all()
    assert (one.products + two.products == (one.factor_masks + two.factor_masks)[:, None] * update).all()
    assert decode_scalars(add128(first.scalars, second.scalars)) == pytest.approx([0.5, 1.25])


def test_an_update_that_meets_several_factors_has_a_mask_for_each_and_may_bring_a_key():
    update, layout = np.arange(50, dtype=np.uint64), Layout("assisted", 50, 1, factors=3, answered=True)
    packed, both = uploads(update, [0.5], layout, KEY)
    assert sum(map(len, packed)) <= 8 * (3 + 1) * 50 + 300
    assert [upload.reply_key for upload in both] == [KEY, KEY]
    one, two = both[0].update, both[1].update
    masks = one.factor_masks + two.factor_masks
    assert len(set(masks)) == len(masks) == 3
    assert (one.share + two.share == update).all()
    assert (one.products + two.products == masks[:, None] * update).all()
    assert decode_scalars(add128(both[0].scalars, both[1].scalars)) == pytest.approx([0.5])


def test_what_does_not_fit_the_layout_is_not_shared():
    keyed = Layout("assisted", 4, 1, answered=True)
    for layout, scores, key in ((keyed, [0.5], b""), (keyed, [0.5], bytes(31)), (keyed, [], KEY)):
        with pytest.raises(ValueError, match="as the layout has"):
            share_update(np.zeros(4, np.uint64), scores, HEADERS, layout, key)
    with pytest.raises(ValueError, match="no reply key"):
        share_update(np.zeros(4, np.uint64), [0.5], HEADERS, Layout("assisted", 4, 1), KEY)
    with pytest.raises(ValueError, match="d=4"):
        share_update(np.zeros(5, np.uint64), [0.5], HEADERS, Layout("assisted", 4, 1))


def test_size():
    d = 10_000
    uploads(np.zeros(d, dtype=np.uint64), [0.0, 0.0, 0.0])  # are of the lengths that the layout says
    plain, personal = Layout("assisted", d, 3), Layout("assisted", d, 128, factors=10, answered=True)
    assert sum(map(plain.envelope_bytes, (0, 1))) == 16 * d + 16 * 3 + 272
    assert sum(map(personal.envelope_bytes, (0, 1))) == 8 * (10 + 1) * d + 16 * 128 + 336


@pytest.mark.parametrize("program", ["assisted", "scalar-first", "faithful"])
def test_the_layout_of_a_round_follows_from_what_is_public(program):
    """k: the rule's scores, the norm ratio where updates are clipped, the bit where they are counted."""
    plain, clipped = RoundParameters("f2gnn", 3), RoundParameters("f2gnn", 3, ratio_max=64.0)
    assert Layout.of_round(plain, program, 7, counted=False) == Layout(program, 7, 2)
    assert Layout.of_round(clipped, program, 7, counted=False) == Layout(program, 7, 3)
    assert Layout.of_round(clipped, program, 7, counted=True) == Layout(program, 7, 4)
    personal = RoundParameters("fedpub", 3, embedding=5)
    assert Layout.of_round(personal, "assisted", 7, counted=False) == Layout("assisted", 7, 5, 3, True)


@pytest.mark.parametrize("program", ["assisted", "scalar-first", "faithful"])
def test_the_digest_is_that_of_what_both_hold_alike_and_of_one_upload_alone(program):
    layout, update = Layout(program, 4, 1), np.zeros(4, np.uint64)
    _, (first, second) = uploads(update, [0.5], layout)
    _, (other, _) = uploads(update, [0.5], layout)
    assert first.digest == second.digest != other.digest
    assert len(first.digest) == DIGEST_BYTES


@pytest.mark.parametrize("field", ["tag", "reply_key"])
def test_halves_that_differ_in_what_both_hold_alike_have_other_digests(field):
    layout = Layout("assisted", 4, 1, answered=True)
    packed, (first, _) = uploads(np.zeros(4, np.uint64), [0.5], layout, KEY)
    changed, start = bytearray(packed[1]), HEADER_BYTES
    for name, length in layout.fields(1).items():
        if name == field:
            changed[start + length - 1] ^= 1
        start += length
    assert unpack_upload(bytes(changed), HEADERS[1], layout).digest != first.digest


@pytest.mark.parametrize("field", ["run", "round", "slot", "client", "server"])
def test_an_upload_for_something_else_is_refused_by_name(field):
    packed, _ = uploads(np.zeros(4, dtype=np.uint64), [0.0])
    other = replace(HEADERS[0], **{field: bytes([1] * 16) if field == "run" else 1 + getattr(HEADERS[0], field)})
    elsewhere = pack(other, {"all": packed[0][HEADER_BYTES:]}, "upload")
    with pytest.raises(ValueError, match=f"another {field}"):
        unpack_upload(elsewhere, HEADERS[0], Layout("assisted", 4, 1))


def test_an_upload_of_another_length_or_format_is_refused():
    layout = Layout("assisted", 4, 1)
    packed, _ = uploads(np.zeros(4, dtype=np.uint64), [0.0])
    whole = len(packed[0])
    for data in (b"", packed[0][:20], packed[0][:-1], packed[0] + b"\0"):
        with pytest.raises(ValueError, match=f"the upload has {len(data)} bytes, expected {whole}"):
            unpack_upload(data, HEADERS[0], layout)
    with pytest.raises(ValueError, match="bytes, expected"):
        unpack_upload(packed[0], HEADERS[0], Layout("assisted", 4, 1, answered=True))
    others = [Layout("assisted", 5, 1), Layout("scalar-first", 4, 1), Layout("assisted", 4, 2)]
    for other in (*others, Layout("assisted", 4, 1, factors=2)):
        with pytest.raises(ValueError, match="bytes, expected"):
            unpack_upload(packed[1], HEADERS[1], other)
    answer = pack(HEADERS[0], {"anything": packed[0][HEADER_BYTES:]}, "answer")
    for data in (answer, b"SGNN-U 2" + packed[0][8:]):
        with pytest.raises(ValueError, match="another format than 'SGNN-U 3'"):
            unpack_upload(data, HEADERS[0], layout)


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
    update, layout = np.arange(1000, dtype=np.uint64) - np.uint64(500), Layout(program, 1000, 1)
    packed, both = uploads(update, [0.5], layout)
    assert sum(map(len, packed)) <= bytes_per_element * 1000 + 300
    first, second = (upload.update for upload in both)
    if program == "scalar-first":
        assert (first + second == update).all()
    else:
        assert signed128(add128(first, second)) == list(range(-500, 500))
    with pytest.raises(ValueError, match="bytes, expected"):
        unpack_upload(packed[1], HEADERS[1], replace(layout, parameters=999))


@given(st.integers(0, 2**32 - 1))
def test_noise_of_the_client_is_in_the_sum_whatever_factor_its_update_meets(seed):
    rng = np.random.default_rng(seed)
    update, noise = (rng.integers(0, 2**64, 20, dtype=np.uint64) for _ in range(2))
    layout, factor = Layout("assisted", 20, 1), rng.integers(0, 2**64, 1, dtype=np.uint64)
    packed = share_update(update, [0.5], HEADERS, layout, noise=noise)
    one, two = (unpack_upload(packed[k], HEADERS[k], layout).update for k in (0, 1))
    opened = factor - (one.factor_masks + two.factor_masks)
    parts = [opened * half.share + half.products[0] for half in (one, two)]
    assert (parts[0] + parts[1] == factor * update + noise).all()
    assert (one.share + two.share == update).all()


def test_noise_goes_with_the_program_assisted_and_one_factor_alone():
    noise = np.ones(4, np.uint64)
    for program in ("scalar-first", "faithful"):
        with pytest.raises(ValueError, match="Expected the program assisted"):
            share_update(noise, [0.5], HEADERS, Layout(program, 4, 1), noise=noise)
    with pytest.raises(ValueError, match="Expected noise of shape"):
        share_update(noise, [0.5], HEADERS, Layout("assisted", 4, 1, factors=2), noise=noise)
