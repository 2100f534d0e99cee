"""What a client's process makes of both servers' answers, and what it refuses."""

from __future__ import annotations

import pickle
from dataclasses import replace

import numpy as np
import pytest

from orchestrator.client.opening import OpeningDecoder
from orchestrator.errors import DisagreementError, RangeError
from orchestrator.mpc.fixed_point import VectorFormat
from orchestrator.mpc.prg import Prg
from orchestrator.wire.answer import seal_answer
from orchestrator.wire.envelope import Keypair
from orchestrator.wire.message import Place

FORMAT = VectorFormat(25, 32, 6)
MODEL = np.linspace(-2, 2, 7)
KEYPAIR = Keypair()
DECODER = OpeningDecoder(bytes(16), FORMAT, len(MODEL))
PLACE = Place(3, 1, 8)


def answer(model=MODEL, headers=None, key=KEYPAIR.public_key):
    encoded = FORMAT.encode_model(np.zeros(len(model))) + np.rint(np.ldexp(model, 57)).astype(np.int64).view(np.uint64)
    first = Prg().uint64(len(model))
    headers = headers or [PLACE.header(bytes(16), k) for k in (0, 1)]
    return tuple(seal_answer(share, headers[k], key) for k, share in enumerate((first, encoded - first)))


def test_both_answers_together_are_the_model_also_in_another_process():
    decoder = pickle.loads(pickle.dumps(DECODER))
    np.testing.assert_allclose(decoder(answer(), KEYPAIR, PLACE), MODEL, atol=2.0**-52)


@pytest.mark.parametrize(("field", "value"), [("round", 2), ("slot", 0), ("client", 7)])
def test_an_answer_of_another_place_is_refused(field, value):
    with pytest.raises(DisagreementError, match=f"server 0: .*the answer is meant for another {field}") as caught:
        DECODER(answer(), KEYPAIR, replace(PLACE, **{field: value}))
    assert (caught.value.peer, caught.value.phase, caught.value.round) == (
        "server 0",
        "release",
        value if field == "round" else 3,
    )


def test_an_answer_of_another_run_client_or_length_and_swapped_or_damaged_ones_are_refused():
    good, other = answer(), Keypair()
    damaged = (good[0], good[1][:-1] + bytes([good[1][-1] ^ 1]))
    for decoder, given, keypair, text in (
        (replace(DECODER, run=bytes([1] * 16)), good, KEYPAIR, "server 0: client 8: .* another run"),
        (DECODER, good, other, "server 0: client 8: the envelope is damaged or sealed to another key"),
        (DECODER, damaged, KEYPAIR, "server 1: client 8: the envelope is damaged"),
        (DECODER, good[::-1], KEYPAIR, "server 0: client 8: .* another server 1 instead of 0"),
        (DECODER, (good[0], good[0]), KEYPAIR, "server 1: client 8: .* another server 0 instead of 1"),
        (replace(DECODER, length=8), good, KEYPAIR, "server 0: client 8: the answer has 160 bytes, expected 168"),
    ):
        with pytest.raises(DisagreementError, match=text):
            decoder(given, keypair, PLACE)


def test_a_model_that_left_the_range_is_refused():
    with pytest.raises(RangeError, match=r"sharing\.integer_bits"):
        DECODER(answer(np.full(7, 33.0)), KEYPAIR, PLACE)
