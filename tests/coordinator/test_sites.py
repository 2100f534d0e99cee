"""Sites in place of a pool of clients: the same models, and what one site does or fails to do costs its own part."""

from __future__ import annotations

import os
import signal
import socket
import time
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from threading import Thread

import numpy as np
import pytest

from orchestrator.agreement.site_file import SiteFile
from orchestrator.agreement.sum_plan import sum_plan
from orchestrator.client.plain import plain_encoder
from orchestrator.client.summands import Answers, Statistic
from orchestrator.coordinator.client_pool import warm_up
from orchestrator.coordinator.run_folder import RunFolder
from orchestrator.coordinator.site_transport import LocalSites
from orchestrator.coordinator.sites import RemoteSites
from orchestrator.coordinator.training import train
from orchestrator.errors import (
    ConfigError,
    ConsentError,
    DisagreementError,
    PeerLostError,
    PeerTimeoutError,
)
from orchestrator.graphs.joined import join_clients
from orchestrator.methods import create
from orchestrator.models import create_network
from orchestrator.secure_sum import Sizes
from orchestrator.site import framing
from orchestrator.site.messages import Done, Failed, Hello, Upload, parse_reply, parse_request
from tests.site.hospitals import NAMES, NOISE, Beside, make_hospitals, settings
from tests.site.rounds import engine_for, play, worker_process
from tests.site.session import Session, sum_offer

pytestmark = pytest.mark.usefixtures("one_thread")

BOUND = 2.0**-20
"""On what fixed point and three rounds of training from models that differ by it put a model off by."""


@pytest.fixture(scope="module")
def hospitals(tmp_path_factory):
    return make_hospitals(tmp_path_factory.mktemp("hospitals"))


def start_model(hospitals, config):
    graph = hospitals.graphs[0]
    return create_network(graph.num_features, graph.classes, config.model).initial_parameters(config.seed)


def simulated(hospitals, config, tmp_path):
    """What `safegnn train` makes of the same graphs, in the clear."""
    config = config.changed(engine={"name": "plaintext"}, run={"dir": tmp_path / "runs"})
    graphs = hospitals.graphs
    return train(config, RunFolder.create(config), graph=join_clients(graphs), clients=graphs)


@pytest.fixture
def beside(hospitals, tmp_path):
    """Three sites in this process."""
    return Beside({name: hospitals.worker(tmp_path, name) for name in NAMES})


@pytest.fixture
def started(hospitals):
    """``started(config)``: an engine that has started, with servers that sign and check signatures."""
    with ExitStack() as held:

        def start(config, **changed):
            terms = hospitals.terms(config, **changed)
            engine = held.enter_context(engine_for(hospitals, terms))
            engine.start(np.zeros(terms.length) if "sum" in changed else start_model(hospitals, config))
            return engine

        yield start


# Workers as processes


class Process:
    """A worker's process, forked from one that has imported torch already."""

    def __init__(self, file):
        self.file, self.socket = file, SiteFile.read(file).socket
        self._ours, theirs = warm_up().Pipe()
        self.process = warm_up().Process(target=worker_process, args=(file, theirs), daemon=True)
        self.process.start()

    def ready(self):
        assert self._ours.poll(60)
        return self._ours.recv()

    def kill(self):
        self.process.kill()
        self.process.join()


@pytest.fixture
def processes(forkserver, hospitals, tmp_path):
    running = {name: Process(hospitals.file(name, tmp_path)) for name in NAMES}
    yield running
    for own in running.values():
        own.kill()


def of(processes):
    return LocalSites({name: own.socket for name, own in processes.items()})


def test_three_sites_train_the_model_of_the_simulation(hospitals, processes, started, tmp_path):
    config = settings()
    engine = started(config)
    for k, (name, own) in enumerate(processes.items()):
        assert own.ready().startswith(f"site {name}: client {k} of 3 in trial, ")
        assert own.socket.stat().st_mode & 0o077 == 0
    with RemoteSites(hospitals.roster, of(processes), config) as sites:
        assert sites.hello() == (Sizes(0, 5, 2, 2, 3), {}) and sites.begin(engine.encoder) == {}
        rounds = [*play(sites, engine, config, start_model(hospitals, config), (1, 2, 3))]
    assert all(not missing and not aggregation.left_out for _, missing, aggregation, _ in rounds)
    assert np.abs(rounds[-1][3] - simulated(hospitals, config, tmp_path)).max() < BOUND


def test_a_worker_that_is_killed_in_a_round_costs_its_part_and_goes_on_where_it_stood(hospitals, processes, tmp_path):
    config = settings("federation.min_cohort=2")
    session = Session(hospitals, config)
    victim = processes["clinic-b"]
    for own in processes.values():
        own.ready()
    made = create(hospitals.graphs[1].scaled_to_train(), config, 1)
    first, second = (made.train(session.model).delta for _ in (1, 2))
    taken = {}

    def take(slot, client, upload):
        if client == 0 and not taken.get("killed"):
            taken["killed"] = True
            victim.kill()  # it was asked at the same time
        taken[client] = upload

    with RemoteSites(hospitals.roster, of(processes), config) as sites:
        ask = partial(sites.train, cohort=[0, 1, 2], parameters=session.model, encoder=session.encoder, deliver=take)
        taken["killed"] = True
        assert ask(1).missing == {}
        assert np.abs(session.update(Upload(taken[1]), 1, 1, 1)[0] - first).max() < 2.0**-24
        taken["killed"] = False
        os.kill(victim.process.pid, signal.SIGSTOP)  # so that it has not answered when it dies
        missing = ask(2).missing
        [(slot, error)] = missing.items()
        assert slot == 1 and isinstance(error, PeerLostError) and error.peer == "site clinic-b"
        assert (error.phase, error.round) == ("local training", 2)
        processes["clinic-b"] = Process(victim.file)  # in the same folder, over the socket that the dead one left
        processes["clinic-b"].ready()
        assert ask(3).missing == {}
        assert np.abs(session.update(Upload(taken[1]), 3, 1, 1)[0] - second).max() < 2.0**-24


# Sites in this process


def test_who_refuses_is_named_with_its_reason_and_the_round_goes_on(hospitals, tmp_path):
    config = settings("federation.min_cohort=2")
    session, inbox = Session(hospitals, config), []
    workers = {name: hospitals.worker(tmp_path, name) for name in NAMES[:2]}
    workers["clinic-c"] = hospitals.worker(tmp_path, "clinic-c", policy='{"noise_multiplier": 1}')
    line = "clinic-c refuses: needs noise_multiplier >= 1, the run says 0"
    sites = RemoteSites(hospitals.roster, Beside(workers), config)
    [(client, error)] = sites.begin(session.encoder).items()
    assert client == 2 and isinstance(error, ConsentError) and str(error) == line
    missing = sites.train(1, [2, 0, 1], session.model, session.encoder, lambda *upload: inbox.append(upload)).missing
    assert {slot: str(error) for slot, error in missing.items()} == {0: line}
    assert [(slot, client) for slot, client, _ in inbox] == [(1, 0), (2, 1)]


def test_every_way_to_fail_costs_ones_own_part(hospitals, beside):
    session = Session(hospitals, settings("federation.min_cohort=1"))
    sites = RemoteSites(hospitals.roster, beside, session.config)
    for round, (reply, kind, text) in enumerate(
        [
            (b"nonsense", DisagreementError, "the reply is no msgpack"),
            (Done().to_bytes(), DisagreementError, "replied 'done' to what has another reply"),
            (Failed("ValueError in f2gnn.py, line 3").to_bytes(), PeerLostError, "ValueError in f2gnn.py, line 3"),
        ],
        1,
    ):
        beside.lies, beside.lost, inbox = {"clinic-a": reply}, {"clinic-b"}, []
        trained = sites.train(
            round, [0, 1, 2], session.model, session.encoder, lambda *upload, to=inbox: to.append(upload)
        )
        assert trained.missing.keys() == {0, 1} and [client for _, client, _ in inbox] == [2]
        assert isinstance(trained.missing[0], kind) and text in str(trained.missing[0])
        assert f"round {round}, phase local training: site clinic-a" in str(trained.missing[0])
        assert isinstance(trained.missing[1], PeerLostError) and trained.missing[1].peer == "site clinic-b"


def test_an_upload_of_another_site_or_of_no_signature_is_left_out(hospitals, started, beside):
    """Whoever carries uploads cannot pass one site's off as another's, nor make one of its own."""
    config = settings("federation.min_cohort=1")
    engine = started(config)
    sites = RemoteSites(hospitals.roster, beside, config)
    impostor = hospitals.worker(hospitals.folder / "impostor", "clinic-b")
    impostor.number = 0  # it trains, seals and signs as clinic-a would, with its own key
    beside.workers["clinic-a"] = impostor
    impostor._graph = hospitals.graphs[0]
    [(_, missing, aggregation, _)] = play(sites, engine, config, start_model(hospitals, config), [1])
    assert missing == {} and list(aggregation.left_out.values()) == ["its signature is not the client's"]


def test_sums_come_to_what_the_sites_hold_and_totals_reach_who_was_away(hospitals, beside):
    session = Session(hospitals, settings("method={name: privfairfl, local_epochs: 1}"))
    config, inbox = session.config, {}
    sites = RemoteSites(hospitals.roster, beside, config)
    assert sites.begin(session.encoder) == {}
    [described] = config.method.statistics()
    adding = Session(hospitals, config)
    adding.keypairs, adding.plan = session.keypairs, sum_plan(described, 3, session.plan)
    adding.offer, adding.model = sum_offer(session, described), np.zeros(4)
    add = partial(sites.contribute, 1, bound=described.bound, length=4, encoder=adding.encoder)

    def take(slot, client, upload):
        inbox[client] = adding.update(Upload(upload), 1, client, slot)[0] * -described.bound

    assert add(range(3), Statistic("cells"), deliver=take) == {}
    for k, graph in enumerate(hospitals.graphs):
        own = create(graph.scaled_to_train(), config, k).statistic("cells")
        assert np.abs(inbox[k] - own).max() < 1e-3
    beside.lost = {"clinic-b"}
    sites.hear_total("cells", np.rint(sum(inbox.values())))
    beside.lost, beside.asked = set(), []
    assert sites.train(1, [0, 1, 2], session.model, session.encoder, lambda *upload: None).missing == {}
    kinds = [(name, parse_request(request).kind) for name, request in beside.asked]
    assert kinds == [("clinic-b", "total"), ("clinic-a", "train"), ("clinic-b", "train"), ("clinic-c", "train")]
    with pytest.raises(ConfigError, match="sites do not prepare together"):
        add(range(3), Answers(0, {}), deliver=take)


def test_a_site_that_has_not_heard_a_total_does_not_train_without_it(hospitals, beside):
    session = Session(hospitals, settings("method={name: privfairfl, local_epochs: 1}"))
    sites = RemoteSites(hospitals.roster, beside, session.config)
    sites.begin(session.encoder)
    beside.lies = {"clinic-b": Failed("RunError in memory.py, line 1").to_bytes()}
    sites.hear_total("cells", np.ones(4))
    missing = sites.train(1, [0, 1, 2], session.model, session.encoder, lambda *upload: None).missing
    assert missing.keys() == {1} and "phase secure sum" in str(missing[1])


def test_a_personal_model_reaches_its_site_alone(hospitals, started, beside, tmp_path):
    config = settings("method={name: gcfl, local_epochs: 1}")
    engine = started(config)
    sites = RemoteSites(hospitals.roster, beside, config)
    before = start_model(hospitals, config)
    model = before
    for round in (1, 2):
        cohort = [0, 1, 2]
        engine.prepare(round, 3)
        sites.train(round, cohort, model, engine.encoder, lambda *u, r=round: engine.submit(r, *u), keyed=True)
        answers = engine.aggregate(round, cohort).answers
        assert sites.deliver(round, cohort, answers, engine.decoder) == {}
    live = [next(iter(worker._runs.values())) for worker in beside.workers.values()]
    models = [run._clients[k].model(before) for k, run in enumerate(live)]
    assert all(not np.allclose(own, before, atol=1e-3) for own in models)
    again = hospitals.worker(tmp_path, "clinic-a")
    kept = again._run(engine.encoder.offer)._clients[0].model(before)
    assert np.array_equal(kept, models[0])
    assert sites.models(2, [0, 1, 2], before) == {0: None, 1: None, 2: None}
    with pytest.raises(ConfigError, match="sites show no plaintext"):
        sites.deliver(2, [0], {}, engine.decoder, reveal=True)


def test_exact_metrics_are_of_the_sites_that_say_them(hospitals, tmp_path):
    config = settings("evaluation={where: clients, tables: each}", "federation.min_cohort=1")
    workers = {name: hospitals.worker(tmp_path, name, policy='{"exact_metrics": true}') for name in NAMES[:2]}
    workers["clinic-c"] = hospitals.worker(tmp_path, "clinic-c")
    transport = Beside(workers)
    session, sites = Session(hospitals, config), RemoteSites(hospitals.roster, transport, config)
    assert [*sites.begin(session.encoder)] == [2]
    said = sites.evaluate(1, range(3), start_model(hospitals, config), False)
    assert said.keys() == {0, 1} and said[0]["val"].shape == (2, 2, 2)
    assert said[0]["val"].sum() == hospitals.graphs[0].val.sum()
    transport.lost = {*NAMES}
    with pytest.raises(PeerLostError):
        sites.evaluate(1, range(3), start_model(hospitals, config), False)


def test_sites_whose_data_do_not_fit_are_named(hospitals, beside):
    sites = RemoteSites(hospitals.roster, beside, settings())
    for changed, text in (
        ({"features": 6}, "site clinic-b: its features are 6, and those of site clinic-a 5"),
        ({"columns": "0" * 64}, "site clinic-b: its columns are 0000"),
        ({"consortium": "0" * 64}, "site clinic-b: it is clinic-b of the roster 0000"),
        ({"name": "clinic-c"}, "site clinic-b: it is clinic-c of the roster"),
    ):
        own = parse_reply(beside.workers["clinic-b"].reply(Hello().to_bytes()))
        beside.lies = {"clinic-b": type(own)(**{**vars(own), **changed}).to_bytes()}
        with pytest.raises(ConfigError, match=text):
            sites.hello()
    beside.lies, beside.lost = {}, {"clinic-a"}
    sizes, missing = sites.hello()
    assert sizes == Sizes(0, 5, 2, 2, 3) and [*missing] == [0]
    beside.lost = {*NAMES}
    with pytest.raises(PeerLostError, match="none of 3 is there"):
        sites.hello()


def test_what_sites_cannot_do_is_refused_by_name_before_the_first_round(hospitals, beside):
    for override, text in (
        ("engine.name=plaintext", "engine.name = plaintext"),
        ("engine.name=masking", "engine.name = masking"),
        ("clients.partition=disjoint", "clients.partition = disjoint"),
        ("evaluation.where=whole_graph", "evaluation.where = whole_graph"),
        ("federation.sampling=with_replacement", "federation.sampling = with_replacement"),
        ("method={name: local}", "nothing is aggregated"),
    ):
        overrides = [override, *(["evaluation.where=clients"] if "local" in override else [])]
        with pytest.raises(ConfigError, match=text):
            RemoteSites(hospitals.roster, beside, settings(*overrides))

    sites, config = RemoteSites(hospitals.roster, beside, settings()), settings()
    with pytest.raises(ConfigError, match="sites seal to keys that aggregators of their roster signed"):
        sites.train(1, [0, 1, 2], start_model(hospitals, config), plain_encoder, lambda *upload: None)
    session = Session(hospitals, config)
    with pytest.raises(ConfigError, match="--audit: sites show no plaintext"):
        sites.train(1, [0, 1, 2], session.model, session.encoder, lambda *upload: None, plain_encoder)
    unsigned = replace(session.encoder, offer=b"")
    with pytest.raises(ConfigError, match="sites seal to keys that aggregators of their roster signed"):
        sites.begin(unsigned)
    for call in (lambda: sites.ask(0), lambda: sites.hear(0, {})):
        with pytest.raises(ConfigError, match="sites do not prepare together"):
            call()
    assert beside.asked == []


def test_sites_that_keep_account_are_told_of_rounds_without_them(hospitals, beside):
    noisy = Session(hospitals, settings(*NOISE, "federation={cohort: 2, min_cohort: 2}"))
    sites = RemoteSites(hospitals.roster, beside, noisy.config)
    beside.backwards = True  # who is told answers before those that are waited for
    assert sites.train(1, [0, 1], noisy.model, noisy.encoder, lambda *upload: None).missing == {}
    kinds = [(name, parse_request(request).kind) for name, request in beside.asked]
    assert kinds == [("clinic-c", "announce"), ("clinic-b", "train"), ("clinic-a", "train")]
    beside.backwards, beside.asked, beside.lost = False, [], {"clinic-c"}
    assert sites.train(2, [0, 1], noisy.model, noisy.encoder, lambda *upload: None).missing == {}


# The socket


@pytest.fixture
def listener(tmp_path):
    """``listener(serve)``: a socket at which a thread does this with every connection."""
    with socket.socket(socket.AF_UNIX) as own:
        own.bind(str(tmp_path / "s"))
        own.listen(4)

        def start(act):
            def loop():
                while True:
                    try:
                        connection, _ = own.accept()
                    except OSError:
                        return
                    with connection:
                        act(connection)

            Thread(target=loop, daemon=True).start()
            return tmp_path / "s"

        yield start
        own.shutdown(socket.SHUT_RDWR)


def test_a_silent_a_missing_and_a_lying_worker_are_told_apart(listener, tmp_path):
    def silent(connection):
        connection.recv(1 << 16)
        connection.recv(1)  # until the other side has enough

    path = listener(silent)
    transport = LocalSites({"silent": path, "missing": tmp_path / "nowhere"})
    said = dict(transport.ask({"silent": b"x", "missing": b"x", "unknown": b"x"}, 0.3))
    assert isinstance(said["silent"], PeerTimeoutError) and "no answer within 0.3 s" in str(said["silent"])
    assert isinstance(said["missing"], PeerLostError) and "its worker is not there" in str(said["missing"])
    assert isinstance(said["unknown"], PeerLostError) and "nobody knows where it is" in str(said["unknown"])
    assert dict(transport.ask({}, 1.0)) == {}


@pytest.mark.parametrize("reply", [b"", b"\x05", b"\x05\0\0\0abc", b"\xff\xff\xff\xff"])
def test_a_reply_that_is_cut_or_too_long_loses_the_site(listener, reply):
    def cut(connection):
        connection.recv(1 << 16)
        connection.sendall(reply)

    said = dict(LocalSites({"one": listener(cut)}).ask({"one": b"x"}, 10.0))
    assert isinstance(said["one"], PeerLostError)


def test_replies_are_heard_as_they_come(listener, tmp_path):
    def echo(connection):
        until = time.monotonic() + 30.0
        framing.send(connection, framing.receive(connection, until), until)

    path = listener(echo)
    transport = LocalSites({"quick": path, "gone": tmp_path / "nowhere"})
    heard = transport.ask({"quick": bytes(1 << 21), "gone": b""}, 30.0)
    assert {name for name, _ in heard} == {"quick", "gone"}
