"""Every order survives the way it is sent, and whatever is not one is refused by name before anything is done."""

from __future__ import annotations

import math
import struct
from dataclasses import asdict, replace

import msgpack
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mpc_programs.rules import RoundParameters
from orchestrator.coordinator.embedded import EmbeddedEngine
from orchestrator.errors import DisagreementError
from orchestrator.methods.base import LocalUpdate
from orchestrator.mpc.fixed_point import VectorFormat
from orchestrator.mpc.shares import VectorShare
from orchestrator.server.embedded import EmbeddedServer
from orchestrator.wire.message import Place
from orchestrator.wire.orders import Aggregate, Announcement, Prepare, Settle, Setup, Submit, parse
from orchestrator.wire.upload import Layout
from tests.support import engine_of

ANNOUNCEMENT = Announcement(RoundParameters("f2gnn", 3, ratio_max=64.0), 0.5, None)
SETUP = Setup(
    bytes(16),
    "assisted",
    "0" * 64,
    ANNOUNCEMENT,
    2,
    VectorFormat(25, 32, 6),
    True,
    [5, 2**24 - 1],
    {"name": "embedded"},
    bytes(80),
    ("127.0.0.1", 4000),
    None,
)
ORDERS = [
    SETUP,
    replace(SETUP, dealer=("127.0.0.1", 4001)),
    Prepare(7, ANNOUNCEMENT),
    Prepare(7, Announcement(RoundParameters("fedpub", 3, embedding=4), 0.0, None)),
    Submit(7, 0, 12, b"sealed"),
    Settle(7, [(0, 12), (1, 3)]),
    Settle(7, []),
    Aggregate(7, [12, 3]),
]


def sent(order):
    return msgpack.unpackb(msgpack.packb(order.message()))


def plain(order):
    """Fields without the difference between tuples and lists."""
    return msgpack.unpackb(msgpack.packb(asdict(order)))


@pytest.mark.parametrize("order", ORDERS, ids=lambda order: order.kind)
def test_an_order_arrives_as_it_was_given(order):
    arrived = parse(sent(order))
    assert type(arrived) is type(order) and plain(arrived) == plain(order)


@pytest.mark.parametrize("order", ORDERS, ids=lambda order: order.kind)
def test_a_missing_or_further_field_is_refused(order):
    message = sent(order)
    for field in message:
        with pytest.raises(ValueError, match="unknown order" if field == "type" else f"'{order.kind}' with other"):
            parse({name: value for name, value in message.items() if name != field})
    with pytest.raises(ValueError, match="with other fields than"):
        parse({**message, "more": 1})


BAD_INTEGERS = [-1, 2**40, 2**63, 1.0, True, "1", None, b"", [1]]
BAD_FLOATS = [math.nan, math.inf, -math.inf, "1", True, b"", [1.0]]


@pytest.mark.parametrize(
    ("order", "path", "values"),
    [
        (Submit(7, 0, 12, b""), ("round",), BAD_INTEGERS),
        (Submit(7, 0, 12, b""), ("slot",), BAD_INTEGERS),
        (Submit(7, 0, 12, b""), ("client",), BAD_INTEGERS),
        (Submit(7, 0, 12, b""), ("envelope",), ["", 1, None, [1], {}]),
        (Settle(7, []), ("places",), [None, [1], [[1]], [[1, 2, 3]], [[1, -1]], [[1, 2**40]], ["ab"], {}]),
        (Aggregate(7, []), ("cohort",), [None, [-1], [1.0], [[1]], ["a"], 5, {}, "12"]),
        (Prepare(7, ANNOUNCEMENT), ("announcement",), [None, [], {}, {"parameters": 1}]),
        (Prepare(7, ANNOUNCEMENT), ("announcement", "noise_stddev"), [*BAD_FLOATS, None, -0.1]),
        (Prepare(7, ANNOUNCEMENT), ("announcement", "count_stddev"), [*BAD_FLOATS, -0.1]),
        (Prepare(7, ANNOUNCEMENT), ("announcement", "parameters", "rule"), ["", "median", 1, None]),
        (Prepare(7, ANNOUNCEMENT), ("announcement", "parameters", "cohort"), [*BAD_INTEGERS, 2**20 + 1]),
        (Prepare(7, ANNOUNCEMENT), ("announcement", "parameters", "embedding"), [*BAD_INTEGERS, 2**20 + 1]),
        (Prepare(7, ANNOUNCEMENT), ("announcement", "parameters", "expected"), [-1, 2**40, 1.5, "1", 2**20 + 1]),
        (Prepare(7, ANNOUNCEMENT), ("announcement", "parameters", "tau"), [*BAD_FLOATS, None, 0.0, -1.0]),
        (Prepare(7, ANNOUNCEMENT), ("announcement", "parameters", "lam"), [*BAD_FLOATS, None]),
        (Prepare(7, ANNOUNCEMENT), ("announcement", "parameters", "ratio_max"), [*BAD_FLOATS, 0.0, -1.0]),
        (ORDERS[3], ("announcement", "parameters", "ratio_max"), [64.0]),
        (ORDERS[3], ("announcement", "noise_stddev"), [0.1]),
        (ORDERS[3], ("announcement", "count_stddev"), [0.0]),
        (SETUP, ("run",), [b"", bytes(15), bytes(17), "x" * 16, None]),
        (SETUP, ("program",), ["", "other", 1, None]),
        (SETUP, ("min_cohort",), BAD_INTEGERS),
        (SETUP, ("vectors", "update_bits"), [*BAD_INTEGERS, 60]),
        (SETUP, ("vectors", "weight_bits"), [33]),
        (SETUP, ("engine",), [None, [], {"a": 1}, {1: "a"}, "a"]),
        (SETUP, ("bands",), [None, 5, [-1], [2**24], [0.5], [[1]], [0] * 256]),
        (SETUP, ("model",), [bytes(7), "", None, [0.5]]),
        (SETUP, ("peer",), [None, [], ["a"], [1, "a"], ["a", -1], ["a", 65536], ["a", 1, 2], "ab"]),
        (SETUP, ("dealer",), [[], ["a"], [1, "a"], ["a", -1], ["a", 65536], "ab"]),
    ],
)
def test_a_field_of_another_type_or_range_is_refused_by_name(order, path, values):
    for value in values:
        message = sent(order)
        inner = message
        for name in path[:-1]:
            inner = inner[name]
        inner[path[-1]] = value
        with pytest.raises(ValueError, match=f"gave the order '{order.kind}") as caught:
            parse(message)
        assert "\n" not in str(caught.value)


anything = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8) | st.binary(max_size=8),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=12,
)


@st.composite
def damaged(draw):
    """An order of which some fields, at any depth, are replaced, dropped or added."""
    message = sent(draw(st.sampled_from(ORDERS)))
    for _ in range(draw(st.integers(1, 3))):
        inner = message
        while True:
            name = draw(st.sampled_from(sorted(inner)))
            if isinstance(inner[name], dict) and inner[name] and draw(st.booleans()):
                inner = inner[name]
                continue
            break
        match draw(st.integers(0, 3)):
            case 0 if len(inner) > 1:
                del inner[name]
            case 1:
                inner[draw(st.text(max_size=8))] = draw(anything)
            case _:
                inner[name] = draw(anything)
    return message


@given(damaged() | st.dictionaries(st.text(max_size=8), anything, max_size=6))
def test_whatever_is_no_order_is_refused_and_by_nothing_but_a_value_error(message):
    try:
        order = parse(message)
    except ValueError as error:
        assert str(error).startswith("gave ") and "\n" not in str(error)
    else:
        assert plain(parse(sent(order))) == plain(order)  # it is one, as it can be sent


@pytest.mark.parametrize(
    ("message", "reason"),
    [
        ({"type": "upload", "round": 1}, "gave the order 'upload' with other fields"),
        ({"type": "stop"}, "gave an unknown order"),
        (SETUP.message(), "gave the order 'setup' out of turn"),
        (Settle(1, [(0, 2**41)]).message(), "gave the order 'settle' with a field 'places'"),
        (Prepare(1, replace(ANNOUNCEMENT, noise_stddev=1e9)).message(), "announced too much noise"),
        (Prepare(1, replace(ANNOUNCEMENT, noise_stddev=0.0, count_stddev=1e9)).message(), "announced too much noise"),
        (b"no order at all", "sent a malformed message"),
    ],
)
def test_a_server_that_is_given_such_an_order_names_the_coordinator(message, reason):
    with engine_of(EmbeddedEngine, ANNOUNCEMENT.parameters, SETUP.vectors, clip_norm=1.0, timeout_sec=20.0) as engine:
        engine.start(np.zeros(10))
        for channel in engine._channels.values():
            channel.send(message if isinstance(message, bytes) else msgpack.packb(message))
        with pytest.raises(DisagreementError, match=reason) as caught:
            engine._collect("nothing")
        assert caught.value.peer == "coordinator"


def test_parameters_that_nothing_can_be_computed_with_are_the_coordinators_fault():
    with engine_of(EmbeddedEngine, ANNOUNCEMENT.parameters, SETUP.vectors, clip_norm=1.0, timeout_sec=20.0) as engine:
        engine.start(np.zeros(10))
        engine._announced = Announcement(replace(ANNOUNCEMENT.parameters, lam=1e300), 0.0, None)
        engine._send(Prepare(1, engine._announced))
        engine._prepared = 1
        for slot in range(3):
            sealed = engine.encoder(
                LocalUpdate(np.zeros(10), 0.0, {"balance": 0.5, "fairness": 0.5}), Place(1, slot, slot)
            )
            engine.submit(1, slot, slot, sealed)
        with pytest.raises(DisagreementError, match="announced parameters that nothing can be computed") as caught:
            engine.aggregate(1, [0, 1, 2])
        assert caught.value.peer == "coordinator"


def test_an_order_longer_than_any_of_the_round_is_not_read():
    """The announced length is enough."""
    with engine_of(EmbeddedEngine, ANNOUNCEMENT.parameters, SETUP.vectors, clip_norm=1.0, timeout_sec=20.0) as engine:
        engine.start(np.zeros(10))
        engine.prepare(1, 1000)  # whose places take more than an upload
        for channel in engine._channels.values():
            channel._socket.sendall(struct.pack("<I", 20 * 1000 + 2048 + 1))
        with pytest.raises(DisagreementError, match="sent a message of 22049 bytes where 22048 are the most") as caught:
            engine._collect("nothing")
        assert caught.value.peer == "coordinator"


@pytest.mark.parametrize(("size", "length"), [(3, 10), (3, 10_000), (1000, 10), (2**15, 10)])
def test_every_order_of_a_round_is_shorter_than_the_longest(size, length):
    parameters = replace(ANNOUNCEMENT.parameters, cohort=size)
    for index in (0, 1):
        server = EmbeddedServer(index, None, None, None)
        server._announced, server._program = Announcement(parameters, 0.5, 0.5), "assisted"
        server._model = VectorShare(np.zeros(length, np.uint64), 57, index)
        largest = 2**40 - 1
        envelope = bytes(Layout.of_round(parameters, "assisted", length, True).envelope_bytes(index))
        for order in (
            Submit(largest, largest, largest, envelope),
            Settle(largest, [(largest, largest)] * size),
            Aggregate(largest, [largest] * size),
            Prepare(largest, server._announced),
        ):
            assert len(msgpack.packb(order.message())) <= server.longest_order
