"""A server's answer to one client: who can open it, and what is refused."""

from dataclasses import replace

import numpy as np
import pytest

from orchestrator.wire.answer import check_reply_key, open_answer, seal_answer
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
    for opener, data in ((Keypair(), envelope), (keypair, damaged)):
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


@pytest.mark.parametrize("length", [0, 32, 39, 48])
def test_a_share_of_another_length_is_refused_before_it_is_opened(length, keypair, monkeypatch):
    envelope = seal(pack(HEADER, {"share": bytes(length)}, "answer"), keypair.public_key, ANSWER)
    monkeypatch.setattr(Keypair, "open", lambda *_: pytest.fail("opened"))
    with pytest.raises(ValueError, match=f"the answer has {len(envelope)} bytes, expected {56 + 40 + 48}"):
        open_answer(envelope, keypair, HEADER, 5)


def test_what_is_no_message_or_no_key_is_refused(keypair):
    upload = seal(pack(HEADER, {"share": SHARE.tobytes()}, "upload"), keypair.public_key, ANSWER)
    with pytest.raises(ValueError, match="the answer has another format"):
        open_answer(upload, keypair, HEADER, 5)
    check_reply_key(keypair.public_key)
    for key in (b"", bytes(31), bytes(32)):  # the last one is a point of small order
        with pytest.raises(ValueError, match="its reply key is none"):
            check_reply_key(key)
