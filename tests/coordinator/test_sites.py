"""Sites in place of a pool of clients: the same models, and what one site does or fails to do costs its own part."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from contextlib import ExitStack

import numpy as np
import pytest

from orchestrator.agreement.site_file import SiteFile
from orchestrator.client.plain import plain_encoder
from orchestrator.client.summands import Answers
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
from orchestrator.models import create_network
from orchestrator.secure_sum import Sizes
from orchestrator.site import framing
from orchestrator.site.messages import Done, Failed, Hello, Refused, Upload, Welcome, parse_reply, parse_request
from tests.site.hospitals import NAMES, Beside, make_hospitals, settings
from tests.site.rounds import engine_for, play

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
    """A worker as an owner starts it."""

    def __init__(self, file):
        self.file, self.socket = file, SiteFile.read(file).socket
        command = [sys.executable, "-m", "orchestrator.cli", "site", "--config", str(file)]
        self.process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
        assert self.process.stderr is not None
        self.first = self.process.stderr.readline()

    def kill(self):
        self.process.kill()
        self.process.wait()

    def end(self):
        """Returns what it said until its end."""
        self.process.terminate()
        return self.process.communicate(timeout=60)[1]


@pytest.fixture
def processes(hospitals, tmp_path):
    running = {name: Process(hospitals.file(name, tmp_path)) for name in NAMES}
    yield running
    for own in running.values():
        own.kill()
        own.process.stderr.close()


def test_three_sites_train_the_model_of_the_simulation_and_one_that_is_killed_costs_its_part(
    hospitals, processes, started, tmp_path
):
    config = settings("federation.min_cohort=2")
    model = start_model(hospitals, config)
    for name, own in processes.items():
        assert f"site {name}: client {NAMES.index(name)} of 3 in trial" in own.first
        assert own.socket.stat().st_mode & 0o077 == 0
    engine = started(config)
    victim = processes["clinic-b"]
    with RemoteSites(
        hospitals.roster, LocalSites({name: own.socket for name, own in processes.items()}), config
    ) as sites:
        assert sites.hello() == (Sizes(0, 5, 2, 2, 3), {}) and sites.begin(engine.encoder) == {}
        for round, missing, aggregation, trained in play(sites, engine, config, model, (1, 2, 3)):  # noqa: B007
            assert not missing and not aggregation.left_out
    assert np.abs(trained - simulated(hospitals, config, tmp_path)).max() < BOUND
    engine = started(config)  # another session of the run, in which a worker dies
    model = start_model(hospitals, config)

    def kill_in_round_2(round):
        if round == 2:
            os.kill(victim.process.pid, signal.SIGSTOP)  # it has the order, and has not answered, when it dies
            killing.append(subprocess.Popen(["sh", "-c", f"sleep 0.2; kill -9 {victim.process.pid}"]))

    killing: list[subprocess.Popen] = []
    with RemoteSites(
        hospitals.roster, LocalSites({name: own.socket for name, own in processes.items()}), config
    ) as sites:
        assert sites.begin(engine.encoder) == {}
        rounds = play(sites, engine, config, model, (1, 2, 3), kill_in_round_2)
        assert not next(rounds)[1]
        _, missing, aggregation, _ = next(rounds)
        [(client, error)] = missing.items()
        assert client == 1 and isinstance(error, PeerLostError) and error.peer == "site clinic-b"
        assert (error.phase, error.round) == ("local training", 2)
        assert list(aggregation.left_out.values()) == ["nothing arrived"]
        killing[0].wait()
        victim.kill()
        processes["clinic-b"] = Process(victim.file)  # in the same folder, over the socket that the dead one left
        assert not next(rounds)[1]
    state = victim.file.parent / "state" / "runs" / hospitals.terms(config).run
    assert {path.name for path in state.glob("state-*")} == {"state-1.npz", "state-3.npz"}
    said = processes["clinic-a"].end()
    assert said == "safegnn: interrupted\n" and not processes["clinic-a"].socket.exists()


def test_a_second_worker_of_a_site_is_refused(hospitals, tmp_path):
    first = Process(hospitals.file("clinic-a", tmp_path))
    try:
        second = Process(first.file)
        assert "is writing to it; wait until it has ended, or stop it" in second.first
        assert second.process.wait(timeout=60) == 1
        second.process.stderr.close()
        reply = parse_reply(framing.ask(first.socket, Hello().to_bytes(), 30.0))
        assert isinstance(reply, Welcome) and reply.name == "clinic-a"
    finally:
        first.kill()
        first.process.stderr.close()


# Sites in this process


def test_who_refuses_is_named_with_its_reason_and_the_round_goes_on(hospitals, started, tmp_path):
    config = settings("federation.min_cohort=2")
    workers = {name: hospitals.worker(tmp_path, name) for name in NAMES[:2]}
    workers["clinic-c"] = hospitals.worker(tmp_path, "clinic-c", policy='{"noise_multiplier": 1}')
    engine, line = started(config), "clinic-c refuses: needs noise_multiplier >= 1, the run says 0"
    sites = RemoteSites(hospitals.roster, Beside(workers), config)
    [(client, error)] = sites.begin(engine.encoder).items()
    assert client == 2 and isinstance(error, ConsentError) and str(error) == line
    [(_, missing, aggregation, _)] = play(sites, engine, config, start_model(hospitals, config), [1])
    assert {client: str(error) for client, error in missing.items()} == {2: line}
    assert len(aggregation.left_out) == 1


def test_every_way_to_fail_costs_ones_own_part(hospitals, started, beside):
    config = settings("federation.min_cohort=1")
    engine = started(config)
    sites = RemoteSites(hospitals.roster, beside, config)
    model = start_model(hospitals, config)
    for round, (reply, kind, text) in enumerate(
        [
            (b"nonsense", DisagreementError, "the reply is of no known type"),
            (Done().to_bytes(), DisagreementError, "replied 'done' to what has another reply"),
            (Failed("ValueError in f2gnn.py, line 3").to_bytes(), PeerLostError, "ValueError in f2gnn.py, line 3"),
        ],
        1,
    ):
        beside.lies = {"clinic-a": reply}
        beside.lost = {"clinic-b"}
        [(_, missing, aggregation, model)] = play(sites, engine, config, model, [round])
        assert isinstance(missing[0], kind) and text in str(missing[0]) and "site clinic-a" in str(missing[0])
        assert isinstance(missing[1], PeerLostError) and len(aggregation.left_out) == 2


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


def test_sums_come_to_what_the_sites_hold_and_totals_reach_who_was_away(hospitals, started, beside):
    from orchestrator.agreement.sum_plan import sum_plan
    from orchestrator.client.summands import Statistic
    from orchestrator.methods import create

    config = settings("method={name: privfairfl, local_epochs: 1}")
    engine = started(config)
    sites = RemoteSites(hospitals.roster, beside, config)
    assert sites.begin(engine.encoder) == {}
    [described] = config.method.statistics()
    plan = sum_plan(described, 3, hospitals.terms(config).plan)
    adding = started(config, plan=plan, length=4, sum="cells")
    adding.prepare(1, 3)
    submit = lambda slot, client, upload: adding.submit(1, slot, client, upload)  # noqa: E731
    assert sites.contribute(1, range(3), Statistic("cells"), described.bound, 4, adding.encoder, submit) == {}
    total = described.bound * adding.aggregate(1, [0, 1, 2]).parameters
    own = [create(graph.scaled_to_train(), config, k).statistic("cells") for k, graph in enumerate(hospitals.graphs)]
    assert np.abs(total - sum(own)).max() < 1e-3
    beside.lost = {"clinic-b"}
    sites.hear_total("cells", np.rint(total))
    beside.lost, beside.asked = set(), []
    [(_, missing, _, _)] = play(sites, engine, config, start_model(hospitals, config), [1])
    kinds = [(name, parse_request(request).kind) for name, request in beside.asked]
    assert missing == {} and kinds.count(("clinic-b", "total")) == 1
    assert [kind for name, kind in kinds if name != "clinic-b"] == ["train", "train"]
    with pytest.raises(ConfigError, match="sites do not prepare together"):
        sites.contribute(1, range(3), Answers(0, {}), 1.0, 4, adding.encoder, submit)


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


def test_exact_metrics_are_of_the_sites_that_say_them(hospitals, started, tmp_path):
    config = settings("evaluation={where: clients, tables: each}", "federation.min_cohort=1")
    workers = {name: hospitals.worker(tmp_path, name, policy='{"exact_metrics": true}') for name in NAMES[:2]}
    workers["clinic-c"] = hospitals.worker(tmp_path, "clinic-c")
    transport = Beside(workers)
    engine, sites = started(config), RemoteSites(hospitals.roster, transport, config)
    assert [*sites.begin(engine.encoder)] == [2]
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


def test_what_sites_cannot_do_is_refused_by_name_before_the_first_round(hospitals, beside, started):
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
    engine = started(config)
    with pytest.raises(ConfigError, match="--audit: sites show no plaintext"):
        sites.train(1, [0, 1, 2], start_model(hospitals, config), engine.encoder, lambda *upload: None, plain_encoder)
    for call in (lambda: sites.ask(0), lambda: sites.hear(0, {})):
        with pytest.raises(ConfigError, match="sites do not prepare together"):
            call()
    assert beside.asked == []


def test_announcements_are_made_to_sites_that_keep_account_and_nobody_waits_for_them(hospitals, started, beside):
    noisy = settings("privacy={clip_norm: 1.0, noise_multiplier: 1.0}", "federation={cohort: 2, min_cohort: 2}")
    engine = started(noisy)
    sites = RemoteSites(hospitals.roster, beside, noisy)
    [(_, missing, _, _)] = play(sites, engine, noisy, start_model(hospitals, noisy), [1])
    kinds = sorted((parse_request(request).kind for _, request in beside.asked))
    assert missing == {} and kinds in (["train", "train"], ["announce", "train", "train"])
    assert len(beside.asked) == 3 or beside.asked[-1][0] in NAMES


# The socket


@pytest.fixture
def listener(tmp_path):
    """``listener(serve)``: a socket at which a thread does this with every connection."""
    from threading import Thread

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
        framing.send(connection, framing.receive(connection, float("inf")), float("inf"))

    path = listener(echo)
    transport = LocalSites({"quick": path, "gone": tmp_path / "nowhere"})
    heard = transport.ask({"quick": bytes(1 << 21), "gone": b""}, 30.0)
    assert {name for name, _ in heard} == {"quick", "gone"}


def test_reply_types_are_what_this_module_expects():
    assert {Upload.kind, Refused.kind} == {"upload", "refused"}
