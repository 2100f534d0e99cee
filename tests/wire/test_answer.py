"""A server's answer to one client: who can open it, and what is refused."""

from dataclasses import replace

import numpy as np
import pytest

from orchestrator.wire.answer import open_answer, seal_answer
from orchestrator.wire.envelope import ANSWER, UPLOAD, Keypair, seal
from orchestrator.wire.message import Header, pack

HEADER = Header(bytes(16), 3, 1, 17, 0)
SHARE = np.arange(5, dtype=np.uint64) - np.uint64(2)


@pytest.fixture(scope="module")
def keypair():
    return Keypair()


def test_the_addressed_client_gets_the_share(keypair):
    envelope = seal_answer(SHARE, HEADER, keypair.public_key)
    np.testing.assert_array_equal(open_answer(envelope, keypair, HEADER, 5), SHARE)
    assert len(envelope) < 8 * len(SHARE) + 200


def test_nobody_else_opens_it_and_it_opens_as_nothing_else(keypair):
    envelope = seal_answer(SHARE, HEADER, keypair.public_key)
    damaged = envelope[:-1] + bytes([envelope[-1] ^ 1])
    for opener, data in ((Keypair(), envelope), (keypair, damaged), (keypair, envelope[:10]), (keypair, b"")):
        with pytest.raises(ValueError, match="damaged or sealed to another key"):
            open_answer(data, opener, HEADER, 5)
    with pytest.raises(ValueError, match="damaged or sealed"):
        keypair.open(envelope, UPLOAD)
    with pytest.raises(ValueError, match="damaged or sealed"):
        keypair.open(seal(b"an upload", keypair.public_key), ANSWER)


@pytest.mark.parametrize("field", ["run", "round", "slot", "client", "server"])
def test_an_answer_for_something_else_is_refused_by_name(field, keypair):
    envelope = seal_answer(SHARE, HEADER, keypair.public_key)
    other = replace(HEADER, **{field: bytes([1] * 16) if field == "run" else 1 + getattr(HEADER, field)})
    with pytest.raises(ValueError, match=f"the answer is meant for another {field}"):
        open_answer(envelope, keypair, other, 5)


@pytest.mark.parametrize("fields", [{"share": bytes(32)}, {"share": bytes(48)}, {"share": 40}, {}])
def test_a_share_of_another_length_is_refused(fields, keypair):
    envelope = seal(pack(HEADER, fields), keypair.public_key, ANSWER)
    with pytest.raises(ValueError, match="'share' does not have the expected 40 bytes"):
        open_answer(envelope, keypair, HEADER, 5)


def test_what_is_no_message_or_no_key_is_refused(keypair):
    with pytest.raises(ValueError, match="the answer is not in the expected format"):
        open_answer(seal(b"\xc1", keypair.public_key, ANSWER), keypair, HEADER, 5)
    for key in (b"", bytes(31), bytes(32)):  # the last one is a point of small order
        with pytest.raises(ValueError):
            seal_answer(SHARE, HEADER, key)
