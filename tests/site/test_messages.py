"""Every message survives the way it is sent; whatever is none is refused in one line, by nothing but a ValueError."""

from __future__ import annotations

import math

import msgpack
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.site import messages
from orchestrator.site.messages import (
    Announce,
    Begin,
    Contribute,
    Deliver,
    Done,
    Evaluate,
    Evaluated,
    Failed,
    HearTotal,
    Hello,
    Refused,
    Train,
    Upload,
    Welcome,
    one_line,
    parse_reply,
    parse_request,
    vector,
)

REQUESTS = [
    Hello(),
    Begin(b"offer"),
    Announce(b"offer", 7),
    Train(b"offer", 7, 2, 3, 1.5, b"model"),
    Train(b"offer", 7, 2, 3, None, b"model"),
    Contribute(b"offer", b"sum", 1, 0, 3, b""),
    HearTotal(b"offer", "cells", b"total"),
    Deliver(b"offer", 7, 1, (b"first", b"second")),
    Evaluate(b"offer", 7, b"model", True),
]
REPLIES = [
    Welcome("clinic-a", "0" * 64, "0.1.0", 5, 2, 2, ""),
    Done(),
    Upload((b"first", b"second")),
    Evaluated([1, 2], [3, 4], {"val_auc": 0.5, "test_auc": None}),
    Refused("needs noise"),
    Failed("ValueError in f2gnn.py, line 3"),
]
BOTH = [(parse_request, message) for message in REQUESTS] + [(parse_reply, message) for message in REPLIES]
IDS = [f"{message.kind}-{k}" for k, (_, message) in enumerate(BOTH)]


@pytest.mark.parametrize(("parse", "message"), BOTH, ids=IDS)
def test_a_message_arrives_as_it_was_sent(parse, message):
    assert parse(message.to_bytes()) == message


def test_every_type_is_here():
    named = {name for name in messages.__all__ if name[0].isupper()} - {"Message"}
    assert named == {type(message).__name__ for _, message in BOTH}


@pytest.mark.parametrize(("parse", "message"), BOTH, ids=IDS)
def test_a_missing_or_further_field_is_refused(parse, message):
    content = msgpack.unpackb(message.to_bytes())
    for name in content:
        with pytest.raises(ValueError, match="of no known type" if name == "type" else "with other fields than"):
            parse(msgpack.packb({field: value for field, value in content.items() if field != name}))
    with pytest.raises(ValueError, match="with other fields than"):
        parse(msgpack.packb({**content, "more": 1}))


def test_a_request_is_no_reply_and_a_reply_no_request():
    for parse, message in BOTH:
        with pytest.raises(ValueError, match="of no known type"):
            (parse_reply if parse is parse_request else parse_request)(message.to_bytes())


@pytest.mark.parametrize(
    ("message", "field", "values"),
    [
        (REQUESTS[3], "round", [-1, 2**40, 1.0, True, "1", None, b""]),
        (REQUESTS[3], "slot", [-1, 2**40, None]),
        (REQUESTS[3], "cohort", [-1, None, [3]]),
        (REQUESTS[3], "clip_norm", [math.nan, math.inf, "1", True]),
        (REQUESTS[3], "model", ["model", None, 1, [b"m"]]),
        (REQUESTS[3], "offer", ["offer", None, 1]),
        (REQUESTS[6], "name", [b"cells", None, 1]),
        (REQUESTS[7], "answers", [[b"one"], [b"1", b"2", b"3"], b"one", ["one", "two"], None]),
        (REQUESTS[8], "own", [1, 0, "yes", None]),
        (REPLIES[0], "features", [-1, 0.5, None]),
        (REPLIES[0], "name", ["two\nlines", "\x1b[31m", 1, " padded", "long" * 200]),
        (REPLIES[2], "envelopes", [[], [b"one"], [b"1", b"2", b"3"], b"12", ["a", "b"]]),
        (REPLIES[3], "val", [[-1], [0.5], None, [2**40]]),
        (REPLIES[3], "figures", [{"auc": math.nan}, {"auc": "0.5"}, [0.5]]),
        (REPLIES[4], "reason", ["two\nlines", "\x07", None, b"bytes"]),
        (REPLIES[5], "where", ["a" * 401, "\r"]),
    ],
)
def test_a_field_of_another_type_or_range_is_refused_by_name(message, field, values):
    parse = parse_request if message in REQUESTS else parse_reply
    for value in values:
        content = {**msgpack.unpackb(message.to_bytes()), field: value}
        with pytest.raises(ValueError, match=f"'{message.kind}' with a field '{field}'") as caught:
            parse(msgpack.packb(content))
        assert "\n" not in str(caught.value)


anything = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**63)
    | st.floats()
    | st.text(max_size=8)
    | st.binary(max_size=8),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=12,
)


@st.composite
def damaged(draw):
    """A message of which fields are replaced, dropped or added; or bytes of it changed, cut or added."""
    content = msgpack.unpackb(draw(st.sampled_from([message for _, message in BOTH])).to_bytes())
    for _ in range(draw(st.integers(0, 3))):
        name = draw(st.sampled_from([*sorted(content), "more"]))
        if draw(st.booleans()):
            content.pop(name, None)
        else:
            content[name] = draw(anything)
        if not content:
            break
    data = bytearray(msgpack.packb(content))
    for _ in range(draw(st.integers(0, 2))):
        place = draw(st.integers(0, len(data) - 1))
        data[place : place + draw(st.integers(0, 2))] = draw(st.binary(max_size=3))
        data = data or bytearray(1)
    return bytes(data)


@given(damaged() | st.binary(max_size=64) | anything.map(msgpack.packb))
def test_whatever_is_no_message_is_refused_by_a_value_error_in_one_line(data):
    for parse in (parse_request, parse_reply):
        try:
            message = parse(data)
        except ValueError as error:
            assert str(error).startswith("the re") and "\n" not in str(error)
        else:
            assert parse(message.to_bytes()) == message


def test_a_deeply_nested_message_is_refused():
    with pytest.raises(ValueError, match="no msgpack"):
        parse_request(b"\x91" * 100_000)


@given(st.text())
def test_text_for_the_other_end_is_one_printable_line(text):
    line = one_line(text)
    assert line.isprintable() and len(line) <= 400 and one_line(line) == line
    assert parse_reply(Refused(line).to_bytes()) == Refused(line)


def test_a_vector_has_its_length_and_is_finite():
    numbers = np.array([1.0, -2.5, 0.0])
    assert np.array_equal(vector(numbers.tobytes(), 3, "a model"), numbers)
    for data, length in ((b"", 3), (numbers.tobytes(), 2), (numbers.tobytes()[:-1], 3)):
        with pytest.raises(ValueError, match=f"a model of {len(data)} bytes, expected {8 * length}"):
            vector(data, length, "a model")
    for wrong in (np.nan, np.inf, -np.inf):
        with pytest.raises(ValueError, match="NaN or infinity"):
            vector(np.array([1.0, wrong]).tobytes(), 2, "a model")
