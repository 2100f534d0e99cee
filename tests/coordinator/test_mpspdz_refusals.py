"""Rounds that differ from each other have no compiled program."""

from __future__ import annotations

from dataclasses import asdict

import msgpack
import pytest

from mpc_programs.rules import RoundParameters
from orchestrator.coordinator.mpspdz import MpSpdzEngine
from orchestrator.errors import ConfigError, DisagreementError
from orchestrator.mpc.fixed_point import VectorFormat
from orchestrator.server import mpspdz_dealer as dealer
from orchestrator.transport.channel import Channel, Position
from tests.support import engine_of


def test_a_cohort_of_another_size_is_refused_by_the_setting(standin):
    engine = engine_of(MpSpdzEngine, RoundParameters("fedavg", 3), VectorFormat(25, 32, 6), home=standin.home)
    with pytest.raises(ConfigError, match=r"federation\.sampling: .* 3 clients, but round 7 has 0") as caught:
        engine.prepare(7, 0)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("parameters", "options", "setting"),
    [
        (RoundParameters("f2gnn", 3, expected=3), {}, r"^privacy\.sensitivity: bounded_weights"),
        (
            RoundParameters("f2gnn", 3, ratio_max=8.0),
            {"clip_norm": 8.0, "count_stddev": 0.0},
            r"^privacy\.clip: quantile",
        ),
    ],
)
def test_what_has_no_program_is_refused_before_anything_starts(standin, parameters, options, setting):
    with pytest.raises(ConfigError, match=setting) as caught:
        engine_of(MpSpdzEngine, parameters, VectorFormat(25, 32, 6), home=standin.home, **options)
    assert "\n" not in str(caught.value)


class Told(Channel):
    """A connection on which server 0 has said something."""

    def __init__(self, said):
        self.peer, self.position, self._said = "server 0", Position("online", 3), said

    def wait(self):
        pass

    def receive(self, longest):
        return msgpack.packb(self._said)


GOOD = {
    "round": 4,
    "port": 5000,
    "program": "assisted",
    "parameters": asdict(RoundParameters("fedavg", 2)),
    "length": 8,
    **dict.fromkeys(("home", "cache", "scratch"), "somewhere"),
}


@pytest.mark.parametrize(
    "change",
    [
        {"round": None},
        {"round": 1.5},
        {"port": "5000"},
        {"program": "other"},
        {"parameters": {}},
        {"parameters": [1]},
        {"parameters": {"rule": "fedavg", "cohort": 2, "more": 1}},
        {"parameters": asdict(RoundParameters("fedpub", 2))},
        {"home": None},
        {"scratch": 5},
    ],
)
def test_an_order_to_the_dealer_that_is_none_names_server_0(change):
    with pytest.raises(DisagreementError, match="server 0: gave an order that is none"):
        dealer.serve({"server 0": Told(GOOD | change)}, Position())
    for name in GOOD:
        with pytest.raises(DisagreementError, match="server 0: gave an order that is none"):
            dealer.serve({"server 0": Told({key: value for key, value in GOOD.items() if key != name})}, Position())


def test_the_order_that_these_differ_from_is_read():
    order = dealer._read(Told(GOOD))
    assert (order.round, order.port, order.shape.length) == (4, 5000, 8)
