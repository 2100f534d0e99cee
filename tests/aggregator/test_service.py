"""Two services in threads of this process, real connections: rounds are those of servers that are started here, and a
coordinator that lies is refused by name."""

from __future__ import annotations

import io
import json
import socket
import threading
import urllib.request
from contextlib import closing
from dataclasses import replace

import numpy as np
import pytest

from orchestrator.aggregator.log import Told
from orchestrator.aggregator.service import Service
from orchestrator.agreement.from_settings import plan_of
from orchestrator.agreement.terms import RunTerms
from orchestrator.config import load_config
from orchestrator.coordinator.audit import float64_aggregate
from orchestrator.coordinator.embedded import EmbeddedEngine
from orchestrator.coordinator.services import Services
from orchestrator.errors import ConfigError, ConsentError, DisagreementError, ProtocolError
from orchestrator.methods.base import LocalUpdate
from orchestrator.transport.channel import Position
from orchestrator.transport.door import connect
from orchestrator.wire.envelope import UPLOAD
from orchestrator.wire.message import Place
from orchestrator.wire.orders import Aggregate, Prepare, Propose, Settle
from tests.aggregator.services import Threads, free_ports
from tests.agreement.participants import make_consortium

MODEL = np.linspace(-1, 1, 30)
SITES = ("north", "south")


def config_of(*settings):
    usual = (
        "method.name=fedavg",
        "clients.count=2",
        "federation.cohort=2",
        "federation.rounds=3",
        "privacy.clip_norm=1.0",
        "evaluation.where=nowhere",
    )
    return load_config(overrides=[*usual, *settings])


class Running(Threads):
    """Both services, and what it takes to be their coordinator."""

    def __init__(self, folder, **policy):
        ports = free_ports(4)
        self.consortium = make_consortium(folder, ports[:2])
        keys = [self.consortium.keys[name] for name in ("uni-x", "uni-y")]
        super().__init__(self.consortium.roster, keys, folder, ports[2:], **policy)

    def terms(self, config, **others):
        digest = self.consortium.roster.digest
        return RunTerms.of(config, digest, "ab" * 16, plan_of(config), len(MODEL), **others)

    def engine(self, config, terms=None):
        identity = self.consortium.identity("hub")
        servers = Services(self.consortium.roster, identity, terms or self.terms(config), 20.0)
        return EmbeddedEngine(plan_of(config), servers=servers, timeout_sec=20.0)

    def signer(self, client):
        return lambda message: self.consortium.keys[SITES[client]].sign(UPLOAD, message)

    def upload(self, engine, number, client, delta, signer=None, slot=None):
        update = LocalUpdate(delta, float(np.linalg.norm(delta)), {})
        sealing = replace(engine.encoder, sign=signer or self.signer(client))
        return sealing(update, Place(number, client if slot is None else slot, client))


@pytest.fixture(scope="module")
def running(tmp_path_factory):
    with closing(Running(tmp_path_factory.mktemp("services"))) as services:
        yield services


def deltas(number):
    rng = np.random.default_rng(number)
    return [rng.normal(size=len(MODEL)) * scale for scale in (0.05, 0.5)]


def play(running, engine, number, signers=(None, None)):
    for client, delta in enumerate(deltas(number)):
        engine.submit(number, client, client, running.upload(engine, number, client, delta, signers[client]))
    return engine.aggregate(number, [0, 1])


def expected(config, number, model):
    updates = [LocalUpdate(delta, float(np.linalg.norm(delta)), {}) for delta in deltas(number)]
    return float64_aggregate(model, plan_of(config).rule, 1.0, updates)


def test_rounds_of_two_services_are_those_of_float64_and_two_runs_go_on_at_a_time(running):
    config = config_of()
    with running.engine(config) as first, running.engine(config_of("federation.rounds=2")) as second:
        first.start(MODEL)
        second.start(MODEL)
        models = [MODEL, MODEL]
        for number in (1, 2):
            for k, engine in enumerate((first, second)):
                result = play(running, engine, number)
                assert np.abs(result.parameters - expected(config, number, models[k])).max() < 1e-6
                models[k] = result.parameters
                assert not result.left_out
    rounds = [event for event in running.events(0) if event["event"] == "round"]
    assert len(rounds) == 4 and all(event["released"] for event in rounds)


def test_an_upload_that_its_client_did_not_sign_costs_the_client_its_part(running):
    config = config_of("federation.min_cohort=1", "federation.rounds=4")
    with running.engine(config) as engine:
        engine.start(MODEL)
        result = play(running, engine, 1, (None, running.signer(0)))  # north signs in south's name
    assert set(result.left_out) == {1} and "signature" in result.left_out[1]
    updates = [LocalUpdate(deltas(1)[0], float(np.linalg.norm(deltas(1)[0])), {})]
    alone = replace(plan_of(config).rule, cohort=1)
    assert np.abs(result.parameters - float64_aggregate(MODEL, alone, 1.0, updates)).max() < 1e-6


def test_the_terms_that_a_policy_does_not_allow_are_refused_in_one_line(tmp_path):
    with closing(Running(tmp_path, noise_multiplier=1.0)) as strict:
        config = config_of("federation.rounds=5")
        with (
            strict.engine(config) as engine,
            pytest.raises(ConsentError, match=r"aggregator uni-x refuses: .*noise_multiplier >= 1, the run says 0"),
        ):
            engine.start(MODEL)
        noisy = config_of("privacy.noise_multiplier=1.5", "federation.rounds=5")
        with strict.engine(noisy) as engine:
            engine.start(MODEL)
            play(strict, engine, 1)
        strict.settle()
    ends = [event["how"] for event in strict.events(0) if event["event"] == "session ended"]
    assert ends == ["refused", "closed"]


@pytest.mark.parametrize(
    ("settings", "text"),
    [
        (("privacy.clip=quantile",), "privacy.clip = quantile"),
        (("federation.sampling=with_replacement",), "with_replacement"),
        (("engine.name=masking", "privacy.clip_norm=null"), "engine.name = masking"),
    ],
)
def test_runs_that_services_cannot_hold_to_their_terms_are_refused(running, settings, text):
    config = config_of(*settings)
    identity, roster = running.consortium.identity("hub"), running.consortium.roster
    services = Services(roster, identity, running.terms(config), 20.0)
    with pytest.raises(ConsentError, match=text):
        services.meet(bytes(16), Position())


def test_terms_of_another_roster_are_refused(running):
    config = config_of()
    terms = replace(running.terms(config), consortium="0" * 64)
    with running.engine(config, terms) as engine, pytest.raises(ConsentError, match=r"of the roster 0000"):
        engine.start(MODEL)


LIES = {
    "noise of": lambda plan: replace(plan, noise=replace(plan.noise, multiplier=0.5)),
    "another min_cohort": lambda plan: replace(plan, min_cohort=1),
    "other parameters of a round": lambda plan: replace(plan, parameters=replace(plan.rule, ratio_max=1.0)),
    "another plan": lambda plan: replace(plan, stateful=not plan.stateful),
}
"""What a coordinator could do after its terms were accepted, by what the service answers."""


@pytest.mark.parametrize("lie", LIES)
def test_a_setup_that_is_not_on_the_terms_is_refused_by_name(running, lie):
    """The engine is made from another plan than the terms say, of which it shows the digest that was agreed on."""
    config = config_of("privacy.noise_multiplier=1.0", "federation.rounds=6")
    servers = Services(running.consortium.roster, running.consortium.identity("hub"), running.terms(config), 20.0)
    engine = EmbeddedEngine(LIES[lie](plan_of(config)), servers=servers, timeout_sec=20.0)
    if lie != "another plan":
        engine.plan = _Disguised(engine.plan, plan_of(config).digest)
    with engine, pytest.raises(DisagreementError, match=rf"coordinator: gave an order .*terms: .*{lie}"):
        engine.start(MODEL)


class _Disguised:
    """A plan that gives itself out for another one."""

    def __init__(self, plan, digest):
        self._plan, self.digest = plan, digest

    def __getattr__(self, name):
        return getattr(self._plan, name)


def test_orders_within_a_session_are_held_against_the_terms(running):
    config = config_of("federation.rounds=7")
    plan = plan_of(config)
    cases = {
        "a cohort of 1": lambda engine: engine._send(
            Prepare(1, replace(engine._announced, parameters=replace(plan.rule, cohort=1)))
        ),
        "noise of 0.5": lambda engine: engine._send(Prepare(1, replace(engine._announced, noise_stddev=0.5))),
        "client 2 is no site": lambda engine: engine.submit(
            1, 0, 2, running.upload(engine, 1, 0, deltas(1)[0], running.signer(0))
        ),
        "a client stands twice": lambda engine: engine._send(Aggregate(1, [1, 1])),
    }
    for text, lie in cases.items():
        with running.engine(config) as engine:
            engine.start(MODEL)
            with pytest.raises(DisagreementError, match=rf"coordinator: gave an order .*: .*{text}"):
                lie(engine)
                engine._collect("result")


def test_no_round_is_released_beyond_those_of_the_terms_in_all_sessions_together(running):
    config = config_of("federation.rounds=2", "privacy.clip_norm=0.9")
    for numbers in ((1,), (2,)):
        with running.engine(config) as engine:
            engine.start(MODEL)
            for number in numbers:
                play(running, engine, number)
    with running.engine(config) as engine:
        engine.start(MODEL)
        with pytest.raises(DisagreementError, match="asks for release 3 of a run whose terms have 2"):
            play(running, engine, 3)


def test_where_clients_take_turns_none_has_more_of_them_than_epsilon_counts(running):
    """A coordinator that asks the same client in every round, in one session or in two."""
    turns = ("federation={cohort: 1, rounds: 2, min_cohort: 1, sampling: cyclic}", "privacy.bands=1")
    config = config_of(*turns, "privacy.noise_multiplier=1.0", "privacy.sensitivity=bounded_weights")
    assert plan_of(config).privacy.turns(2) == 1

    def ask(engine, number, client):
        upload = running.upload(engine, number, client, deltas(number)[client], running.signer(client), slot=0)
        engine.submit(number, 0, client, upload)
        return engine.aggregate(number, [client])

    again = "asks client 0 for turn 2 of a run in which a client has 1"
    with running.engine(config) as engine:
        engine.start(MODEL)
        assert not ask(engine, 1, 0).left_out
        with pytest.raises(DisagreementError, match=again):
            ask(engine, 2, 0)
    with running.engine(config) as engine:
        engine.start(MODEL)
        with pytest.raises(DisagreementError, match=again):
            ask(engine, 1, 0)
    with running.engine(config) as engine:
        engine.start(MODEL)
        assert not ask(engine, 1, 1).left_out


def test_a_coordinator_that_hangs_up_ends_its_session_alone_and_leaves_nothing(running):
    config = config_of("federation.rounds=8")
    with running.engine(config) as steady:
        steady.start(MODEL)
        lost = running.engine(config_of("federation.rounds=9"))
        lost.start(MODEL)
        lost.close()
        assert not play(running, steady, 1).left_out
    running.settle()
    for thread in threading.enumerate():
        if thread.name in ("noise", "preprocessing"):
            thread.join(20.0)
            assert not thread.is_alive()


def test_one_run_too_many_is_refused_and_strangers_come_nowhere(running):
    identity, address = running.consortium.identity("hub"), running.consortium.roster.aggregators[0].address
    channels = [connect(address, identity, bytes([k] * 16), "server 0", Position(), 20.0) for k in (1, 2, 3, 6)]
    try:
        with pytest.raises(DisagreementError, match=r"asks for a run more than most_runs = 4"):
            connect(address, identity, bytes([7] * 16), "server 0", Position(), 20.0)
        with pytest.raises(DisagreementError, match=r"opens a session that is there already"):
            connect(address, identity, bytes([1] * 16), "server 0", Position(), 20.0)
    finally:
        for channel in channels:
            channel.close()
    site = running.consortium.identity("north")
    with pytest.raises(DisagreementError, match=r"certificate of site north where that of coordinator belongs"):
        connect(address, site, bytes(16), "server 0", Position(), 20.0)
    first = running.consortium.identity("uni-x")
    with pytest.raises(DisagreementError, match="a session that its coordinator has not opened"):
        connect(running.consortium.roster.aggregators[1].address, first, bytes([9] * 16), "server 1", Position(), 20.0)


def test_a_peer_whose_session_has_just_ended_is_let_go_and_the_service_stays(running):
    ours, theirs = socket.socketpair()
    with theirs:
        running.services[1]._admit(ours, "server 0", bytes([8] * 16))
        assert theirs.recv(1) == b""


def test_an_order_before_a_proposal_ends_the_session(running):
    identity, address = running.consortium.identity("hub"), running.consortium.roster.aggregators[0].address
    with closing(connect(address, identity, bytes([4] * 16), "server 0", Position(), 20.0)) as channel:
        channel.send_message(Settle(1, []).message())
        answer = channel.receive_message()
    assert answer["type"] == "error" and "before it proposed a run" in answer["reason"]
    with closing(connect(address, identity, bytes([5] * 16), "server 0", Position(), 20.0)) as channel:
        channel.send_message(Propose(bytes(16), b"{}").message())
        answer = channel.receive_message()
    assert answer["type"] == "refused" and "terms" in answer["reason"]


def test_health_and_metrics_are_told_on_an_address_of_its_own(running):
    host, port = running.services[0]._file.status
    with urllib.request.urlopen(f"http://{host}:{port}/healthz", timeout=20) as answer:
        assert json.load(answer)["status"] == "ok"
    with urllib.request.urlopen(f"http://{host}:{port}/metrics", timeout=20) as answer:
        text = answer.read().decode()
    assert "safegnn_rounds_total" in text and 'safegnn_runs_ended_total{how="closed"}' in text


def test_a_service_that_is_told_to_end_ends_its_sessions_typed(tmp_path):
    services = Running(tmp_path)
    config = config_of()
    with services.engine(config) as engine:
        engine.start(MODEL)
        services.close()
        with pytest.raises(ProtocolError, match=r"server [01]: (is being shut|closed the|connection)"):
            play(services, engine, 1)
    assert services.events(0)[-1] == services.events(0)[-1] | {"event": "ended", "sessions": 0}


def test_an_address_that_is_taken_is_named(running):
    service = running.services[0]
    again = Service(service._file, service._own, service._roster, Told(io.StringIO()))
    with pytest.raises(ConfigError, match=r"listen = 127\.0\.0\.1:\d+: cannot be listened at"):
        again.run()


def test_who_is_no_aggregator_of_the_roster_serves_nobody(running):
    file, consortium = running.services[0]._file, running.consortium
    with pytest.raises(ConfigError, match="hub is coordinator in the roster trial, no aggregator"):
        Service(file, consortium.keys["hub"], consortium.roster)
