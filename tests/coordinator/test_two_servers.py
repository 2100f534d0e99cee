"""Real processes: the round works, and whatever dies, stalls or disagrees ends it with a typed error."""

import os
import socket
import sys
from pathlib import Path

import numpy as np
import pytest

from mpc_programs.rules import RoundParameters
from orchestrator.agreement.announcement import announcement
from orchestrator.agreement.from_settings import plan_of
from orchestrator.agreement.round_plan import Terms
from orchestrator.config import load_config
from orchestrator.coordinator.audit import float64_aggregate
from orchestrator.coordinator.cohorts import sample_cohort
from orchestrator.coordinator.embedded import EmbeddedEngine
from orchestrator.coordinator.factory import create_engine
from orchestrator.errors import (
    ConfigError,
    DisagreementError,
    PeerLostError,
    PeerTimeoutError,
    ProtocolError,
    RangeError,
)
from orchestrator.methods.base import LocalUpdate
from orchestrator.mpc.fixed_point import VectorFormat
from orchestrator.privacy.bands import column_norm
from orchestrator.wire.message import Place
from orchestrator.wire.orders import Aggregate, Prepare, Submit
from tests.support import engine_of, f2gnn_bound

FORMAT = VectorFormat(25, 32, 6)
PARAMETERS = RoundParameters("f2gnn", 2, ratio_max=64.0)
FAULTY = str(Path(__file__).with_name("faulty.py"))
MODEL = np.linspace(-1, 1, 30)


def engine(**options):
    return engine_of(
        EmbeddedEngine, PARAMETERS, FORMAT, clip_norm=1.0, timeout_sec=options.pop("timeout_sec", 20.0), **options
    )


def faulty(role, phase, number, signal="SIGKILL", *marker):
    return {role: [sys.executable, FAULTY, role, phase, str(number), signal, *map(str, marker)]}


def uploads(seed):
    rng = np.random.default_rng(seed)
    deltas = [rng.normal(size=len(MODEL)) * scale for scale in (0.05, 0.5)]
    return [
        LocalUpdate(
            delta, FORMAT.norm(FORMAT.encode_update(delta)), {"balance": rng.random(), "fairness": rng.random()}
        )
        for delta in deltas
    ]


def play(running, number, plain=None, cohort=(4, 7)):
    """One whole round; returns the aggregation."""
    for slot, upload in enumerate(uploads(number) if plain is None else plain):
        sealed = running.encoder(upload, Place(number, slot, cohort[slot]))
        running.submit(number, slot, cohort[slot], sealed)
    return running.aggregate(number, list(cohort))


def gone(pids):
    """None of the processes runs any more (they are children that have been waited for)."""
    for pid in pids:
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)


@pytest.fixture(params=["ot", "dealer"])
def running_afresh(request):
    with engine(preprocessing=request.param) as started:
        started.start(MODEL)
        yield started


@pytest.fixture(scope="module", params=["ot", "dealer"])
def running(request):
    with engine(preprocessing=request.param) as started:
        started.start(MODEL)
        yield started


def test_rounds_follow_each_other_and_costs_are_counted(running):
    model = MODEL
    for number in (1, 2, 3):
        if number != 2:  # the second round must fetch its preprocessing itself
            running.prepare(number, 2)
        result = play(running, number)
        expected = float64_aggregate(model, PARAMETERS, 1.0, uploads(number))
        assert np.abs(result.parameters - expected).max() <= f2gnn_bound(FORMAT, 2, 1.0)
        model = result.parameters
        cost = result.cost
        assert cost.online_bytes[0] == cost.online_bytes[1] < 16_000
        assert 0 < cost.rounds <= 64
        assert all(cost.preprocessing_bytes)
        assert cost.upload_bytes <= 2 * 8 * len(MODEL) + 1000
        assert cost.download_bytes == 16 * len(MODEL)


def test_noise_is_added_by_both_servers():
    d, stddev = 4000, 0.7
    parameters = RoundParameters("fedavg", 1, ratio_max=64.0)
    with engine_of(EmbeddedEngine, parameters, FORMAT, clip_norm=1.0, noise_stddev=stddev, timeout_sec=20.0) as noisy:
        noisy.start(np.zeros(d))
        sealed = noisy.encoder(LocalUpdate(np.zeros(d), 0.0, {}), Place(1, 0, 0))
        noisy.submit(1, 0, 0, sealed)
        noise = noisy.aggregate(1, [0]).parameters
    total = 2**0.5 * stddev
    assert abs(noise.std() / total - 1) < 5 / np.sqrt(2 * d)
    assert abs(noise.mean()) < 5 * total / np.sqrt(d)


def test_noise_with_bands_takes_back_what_it_added_and_hides_turns_alone():
    """Through live servers: C times what the rounds added is fresh noise again, also in a client's second turn.

    A turn too early ends the session.
    """
    d, clients = 3000, 12
    config = load_config(
        overrides=[
            "method.name=fedavg",
            f"clients.count={clients}",
            "federation={sampling: cyclic, cohort: 4, rounds: 4}",
            "privacy={clip_norm: 0.5, noise_multiplier: 2.0, sensitivity: bounded_weights}",
            "evaluation.exact_beside_noise=true",
        ]
    )
    plan = plan_of(config)
    assert len(plan.bands) == 2 and plan.lasting == plan_of(config.changed(federation={"rounds": 9})).lasting
    longer = plan.sensitivity * column_norm(plan.bands)
    assert 2.0 * longer * (1 + 2.0**-21) < plan.terms.noise_stddev < 2.0 * longer * (1 + 2.0**-19)  # rounding's part
    models = [np.zeros(d)]
    with create_engine(config) as noisy:
        noisy.start(models[0])

        def play_with(number, cohort):
            for slot, client in enumerate(cohort):
                sealed = noisy.encoder(LocalUpdate(np.zeros(d), 0.0, {}), Place(number, slot, client))
                noisy.submit(number, slot, client, sealed)
            return noisy.aggregate(number, cohort)

        for number in (1, 2, 3, 4):
            cohort = sample_cohort(config.federation, clients, config.seed, number)
            models.append(play_with(number, cohort).parameters)
        with pytest.raises(DisagreementError, match="again after 2 releases, and the noise has 3 bands"):
            play_with(5, sample_cohort(config.federation, clients, config.seed, 3))
    noises = np.diff(models, axis=0)
    c = [1.0, *(band * 2.0**-24 for band in plan.bands)]
    fresh = [sum(c[j] * noises[t - j] for j in range(min(t + 1, 3))) for t in range(4)]
    expected = 2**0.5 * 2.0 * plan.sensitivity * np.linalg.norm(c)
    for values in fresh:
        assert abs(np.std(values) / expected - 1) < 5 / np.sqrt(2 * d)
    assert np.abs(np.corrcoef(fresh) - np.eye(4)).max() < 5 / np.sqrt(d)
    assert np.corrcoef(noises)[0, 1] < -0.3  # what the first round added, the second takes back


@pytest.mark.parametrize(("how", "factor"), [("each_full", 1.0), ("split", 0.5**0.5)])
def test_each_server_adds_noise_of_the_plans_scale_and_5_percent_would_show(how, factor):
    """In a round without clients a server's share is its share of the model and its noise."""
    d, privacy = 20_000, f"privacy={{clip_norm: 0.5, noise_multiplier: 0.3, noise: {how}}}"
    config = load_config(overrides=["federation.sampling=poisson", "evaluation.exact_beside_noise=true", privacy])
    plan, shares = plan_of(config).privacy, []
    with create_engine(config) as noisy:
        noisy.start(np.zeros(d))
        collect = noisy._collect

        def watch(*wanted):
            replies = collect(*wanted)
            shares.extend(np.frombuffer(replies[f"server {k}"]["share"], dtype="<i8") * 2.0**-57 for k in (0, 1))
            return replies

        noisy._collect = watch
        noisy.prepare(1, 0)
        released = noisy.aggregate(1, [])
    assert released.cost.preprocessing_bytes == (0, 0)
    np.testing.assert_allclose(released.parameters, sum(shares), atol=1e-12)
    expected = factor * 0.3 * plan.sensitivity
    assert plan.server_stddev == pytest.approx(expected)
    for values, stddev in ((shares[0], expected), (shares[1], expected), (sum(shares), 2**0.5 * expected)):
        assert abs(values.std() / stddev - 1) < 0.025  # five standard errors
        assert abs(values.mean()) < 5 * stddev / np.sqrt(d)
    assert abs(np.corrcoef(*shares)[0, 1]) < 5 / np.sqrt(d)


def test_cohorts_may_have_any_size_and_none_at_all(running_afresh):
    model = MODEL
    for number, size in enumerate((2, 0, 3, 1, 0), 1):
        running_afresh.prepare(number, size)
        plain = (uploads(number) + uploads(number + 100))[:size]
        result = play(running_afresh, number, plain, cohort=range(size))
        expected = float64_aggregate(model, PARAMETERS, 1.0, plain)
        assert np.abs(result.parameters - expected).max() <= f2gnn_bound(FORMAT, max(size, 1), 1.0)
        assert (result.cost.preprocessing_bytes[0] > 0) == (size > 0)
        model = result.parameters


@pytest.mark.parametrize("program", ["assisted", "scalar-first", "faithful"])
def test_norms_within_the_clip_bound_are_counted_beside_the_aggregate(program):
    with engine(program=program) as counting:
        counting.start(MODEL)
        model, norms = MODEL, [upload.norm for upload in uploads(1)]
        middle = sum(norms) / 2
        for number, (bound, expected) in enumerate(((64.0, 2), (middle, 1), (norms[0], 1), (min(norms) / 2, 0)), 1):
            counting.prepare(number, 2, Terms(bound, count_stddev=0.0))
            result = play(counting, number, uploads(1))
            assert result.within == expected
            moved = float64_aggregate(model, PARAMETERS, bound, uploads(1))
            assert np.abs(result.parameters - moved).max() <= f2gnn_bound(FORMAT, 2, 1.0)
            model = result.parameters
        counting.prepare(5, 0, Terms(1.0, count_stddev=0.0))
        assert counting.aggregate(5, []).within == 0.0
        counting.prepare(6, 2)
        assert play(counting, 6).within is None


def test_each_server_adds_noise_to_the_count():
    """Rounds without clients release nothing else."""
    with engine() as counting:
        counting.start(np.zeros(1))
        counts = []
        for number in range(1, 201):
            counting.prepare(number, 0, Terms(1.0, count_stddev=3.0))
            counts.append(counting.aggregate(number, []).within)
    counts = np.array(counts)
    assert abs(counts.std() / (2**0.5 * 3.0) - 1) < 5 / (2 * len(counts)) ** 0.5
    assert abs(counts.mean()) < 5 * 2**0.5 * 3.0 / len(counts) ** 0.5


def test_a_cohort_of_another_size_than_was_prepared_is_refused():
    with engine() as refusing, pytest.raises(DisagreementError, match="announced 3 clients, but a cohort of 2"):
        refusing.start(MODEL)
        refusing.prepare(1, 3)
        play(refusing, 1)


def test_terms_of_a_round_replace_the_usual_ones(running_afresh):
    """Another clip bound, and back to the usual one."""
    model = MODEL
    for number, terms in enumerate((Terms(0.25), Terms(40.0), Terms(None), None), 1):
        running_afresh.prepare(number, 2, terms)
        result = play(running_afresh, number)
        expected = float64_aggregate(model, PARAMETERS, 1.0 if terms is None else terms.clip_norm, uploads(number))
        assert np.abs(result.parameters - expected).max() <= f2gnn_bound(FORMAT, 2, 1.0)
        model = result.parameters


def test_noise_of_a_round_that_does_not_fit_is_refused(running):
    with pytest.raises(ConfigError, match=r"sharing\.integer_bits"):
        running.prepare(99, 2, Terms(1.0, 7.0))


def test_servers_that_disagree_on_a_rounds_terms_stop_before_computing():
    with engine() as split, pytest.raises(ProtocolError, match="another terms"):
        split.start(MODEL)
        for channel, stddev in zip(split._channels.values(), (0.1, 0.2), strict=True):
            split._send(Prepare(1, announcement(split.plan, 0, Terms(1.0, stddev))), channel)
            split._send(Aggregate(1, []), channel)
        split._collect("result")


@pytest.mark.parametrize("role", ["server 0", "server 1"])
@pytest.mark.parametrize(
    ("phase", "number"),
    [
        ("handshake", 0),
        ("preprocessing", 0),
        ("preprocessing", 1),
        ("upload", 1),
        ("settlement", 1),
        ("settlement", 2),
        ("handshake", 2),
        ("online", 2),
        ("release", 2),
    ],
)
def test_a_killed_server_ends_the_round(role, phase, number):
    with engine(commands=faulty(role, phase, number)) as struck, pytest.raises(PeerLostError) as caught:
        struck.start(MODEL)
        pids = struck.pids.values()
        for current in (1, 2, 3):
            struck.prepare(current, 2)
            play(struck, current)
    assert caught.value.peer == role
    assert caught.value.round == number
    assert "status -9" in str(caught.value)
    gone(pids if number else [])


def test_a_killed_dealer_ends_the_round():
    with (
        engine(commands=faulty("dealer", "preprocessing", 2), preprocessing="dealer") as struck,
        pytest.raises(PeerLostError) as caught,
    ):
        struck.start(MODEL)
        for current in (1, 2):
            struck.prepare(current, 2)
            play(struck, current)
    assert (caught.value.peer, caught.value.phase, caught.value.round) == ("dealer", "preprocessing", 2)


@pytest.mark.parametrize(
    ("role", "phase"), [("server 0", "online"), ("server 1", "upload"), ("dealer", "preprocessing")]
)
def test_a_stalled_process_ends_the_round_within_the_timeout(role, phase):
    preprocessing = "dealer" if role == "dealer" else "ot"
    struck = engine(commands=faulty(role, phase, 1, "SIGSTOP"), timeout_sec=4.0, preprocessing=preprocessing)
    with struck, pytest.raises(PeerTimeoutError) as caught:
        struck.start(MODEL)
        play(struck, 1)
    assert (caught.value.peer, caught.value.round) == (role, 1)


@pytest.mark.parametrize("preprocessing", ["ot", "dealer"])
def test_the_start_may_take_longer_than_a_silence_in_a_round(preprocessing):
    """No process starts within a thousandth of a second; and a round that a server stalls ends after that time."""
    commands = faulty("server 1", "online", 1, "SIGSTOP")
    hasty = engine(commands=commands, preprocessing=preprocessing, startup_timeout_sec=100.0, timeout_sec=1e-3)
    with hasty:
        hasty.start(MODEL)
        assert {channel.timeout_sec for channel in hasty._channels.values()} == {1e-3}
        with pytest.raises(PeerTimeoutError, match=r"for 0\.00[12] s \((twice )?engine\.timeout_sec\)"):
            play(hasty, 1)


def test_a_start_that_takes_too_long_names_its_setting():
    config = load_config(overrides=["engine={startup_timeout_sec: 0.2, timeout_sec: 1000}"])
    with create_engine(config, {"server 0": [sys.executable, "-c", "import signal; signal.pause()"]}) as silent:
        message = r"server 0: did not start within 0\.2 s \(engine\.startup_timeout_sec\)"
        with pytest.raises(PeerTimeoutError, match=message):
            silent.start(MODEL)


def test_a_server_that_stalls_in_the_start_ends_it():
    """In the base transfers; the other server says so before its coordinator loses patience."""
    struck = engine(
        commands=faulty("server 1", "preprocessing", 0, "SIGSTOP"), startup_timeout_sec=8.0, timeout_sec=1000.0
    )
    with struck, pytest.raises(PeerTimeoutError, match=r"8 s \(engine\.startup_timeout_sec\)") as caught:
        struck.start(MODEL)
    assert (caught.value.peer, caught.value.phase) == ("server 1", "preprocessing")


@pytest.mark.parametrize(
    ("role", "phase", "signal", "preprocessing"),
    [
        ("server 0", "online", "SIGKILL", "ot"),
        ("server 1", "release", "SIGKILL", "ot"),
        ("server 1", "preprocessing", "SIGSTOP", "ot"),
        ("server 0", "online", "SIGSTOP", "ot"),
        ("dealer", "preprocessing", "SIGKILL", "dealer"),
    ],
)
def test_after_a_failed_round_the_engine_starts_again_and_the_next_round_works(
    tmp_path, role, phase, signal, preprocessing
):
    number = 1 if role == "dealer" or phase == "preprocessing" else 2
    commands = faulty(role, phase, number, signal, tmp_path / "marker")
    with engine(commands=commands, preprocessing=preprocessing, timeout_sec=4.0) as recovering:
        recovering.start(MODEL)
        model, first = MODEL, recovering.pids.values()
        with pytest.raises((PeerLostError, PeerTimeoutError)) as caught:
            for current in (1, 2):
                recovering.prepare(current, 2)
                model = play(recovering, current).parameters
        assert (caught.value.peer, caught.value.round) == (role, number)
        recovering.start(model)
        gone(first)
        result = play(recovering, number)
    expected = float64_aggregate(model, PARAMETERS, 1.0, uploads(number))
    assert np.abs(result.parameters - expected).max() <= f2gnn_bound(FORMAT, 2, 1.0)


def test_a_port_in_use_is_one_clear_line():
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with engine(ports=(0, port, 0)) as blocked, pytest.raises(ConfigError, match=f"port {port} of server 1"):
            blocked.start(MODEL)


def test_a_command_that_is_no_server_is_reported_with_its_last_words():
    command = [sys.executable, "-c", "raise SystemExit('no such thing')"]
    with engine(commands={"server 1": command}) as broken, pytest.raises(PeerLostError, match="no such thing"):
        broken.start(MODEL)


def test_a_server_that_has_its_connections_takes_no_more(running):
    for child in running._servers._processes._children.values():
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(("127.0.0.1", child.ready["port"]))


@pytest.mark.parametrize(
    ("number", "cohort", "text"),
    [
        (1, [4, 9], r"coordinator: announced the cohort \[4, 9\], but uploads came for"),
        (1, [4], "coordinator: announced 2 clients, but a cohort of 1"),
        (2, [4, 7], "coordinator: brought uploads for round 2 too"),
    ],
)
def test_a_coordinator_that_contradicts_itself_ends_the_round(number, cohort, text):
    with engine() as refusing, pytest.raises(DisagreementError, match=text):
        refusing.start(MODEL)
        refusing.prepare(1, 2)
        for slot, (upload, client) in enumerate(zip(uploads(1), (4, 7), strict=True)):
            sealed = refusing.encoder(upload, Place(number, slot, client))
            refusing.submit(number, slot, client, sealed)
        refusing.aggregate(1, cohort)


def test_a_round_that_was_aggregated_takes_no_upload_any_more():
    """The same masks under other weights would show how the weights differ."""
    with engine() as refusing:
        refusing.start(MODEL)
        play(refusing, 1)
        with pytest.raises(DisagreementError, match="coordinator: brought a replay: round 1 has been aggregated"):
            play(refusing, 1)


def test_servers_that_disagree_on_the_cohort_stop_before_computing():
    with engine() as split, pytest.raises(DisagreementError, match="was asked about other uploads"):
        split.start(MODEL)
        plain = uploads(1)
        for k, channel in enumerate(split._channels.values()):
            cohort = [4, 7 + k]
            for slot, client in enumerate(cohort):
                sealed = split.encoder(plain[slot], Place(1, slot, client))
                split._send(Submit(1, slot, client, sealed[k]), channel)
            split._send(Aggregate(1, cohort), channel)
        split._collect("result")


def test_a_model_that_leaves_the_range_is_refused():
    parameters = RoundParameters("fedavg", 1)
    with engine_of(EmbeddedEngine, parameters, FORMAT, timeout_sec=20.0) as growing:
        growing.start(np.array([31.0]))
        delta = np.array([-20.0])
        growing.submit(1, 0, 0, growing.encoder(LocalUpdate(delta, 20.0, {}), Place(1, 0, 0)))
        with pytest.raises(RangeError, match=r"sharing\.integer_bits"):
            growing.aggregate(1, [0])


def test_clients_refuse_what_cannot_be_shared(running):
    good = {"balance": 0.5, "fairness": 0.5}
    for delta, norm, scores, text in (
        ([np.nan], 1.0, good, "client 9: the update holds NaN"),
        ([100.0], 100.0, good, r"client 9: .* sharing\.integer_bits"),
        ([0.1], 0.1, {"balance": 1.5, "fairness": 0.5}, "balance score lies outside"),
        ([0.1], 0.1, {"balance": 0.5, "fairness": float("nan")}, "fairness score lies outside"),
    ):
        with pytest.raises(RangeError, match=text):
            running.encoder(LocalUpdate(np.array(delta), norm, scores), Place(1, 0, 9))


def test_closing_leaves_no_process_behind():
    closing = engine()
    closing.start(MODEL)
    pids = list(closing.pids.values())
    closing.close()
    closing.close()
    gone(pids)
