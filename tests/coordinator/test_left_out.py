"""Real servers, and clients that lie or fail: each costs its own part and is named with the reason; rounds go on."""

from __future__ import annotations

import re
from dataclasses import replace
from itertools import count

import numpy as np
import pytest

from mpc_programs.rules import RoundParameters
from orchestrator.agreement.round_plan import Terms
from orchestrator.coordinator import two_servers as engine_module
from orchestrator.coordinator.audit import float64_aggregate, float64_personal
from orchestrator.coordinator.embedded import EmbeddedEngine
from orchestrator.errors import CohortError
from orchestrator.methods.base import LocalUpdate
from orchestrator.mpc.fixed_point import VectorFormat
from orchestrator.server.aggregation import demand
from orchestrator.wire.envelope import Keypair, seal
from orchestrator.wire.message import HEADER_BYTES, Header, Place, pack
from orchestrator.wire.orders import Aggregate, Settle, Submit
from orchestrator.wire.upload import share_update
from tests.support import engine_of, f2gnn_bound

FORMAT = VectorFormat(25, 32, 6)
COHORT = (4, 7, 9, 11)
PARAMETERS = RoundParameters("f2gnn", len(COHORT), ratio_max=64.0)
MODEL = np.linspace(-1, 1, 30)
BAD = 1
"""The slot whose client is bad."""


class Running:
    """An engine that has been started, the model that it released last, and the next round's number."""

    def __init__(self, engine, model=MODEL):
        self.engine, self.model, self._numbers = engine, model, count(1)
        engine.start(model)

    def plain(self, number, size=None):
        rng, parameters = np.random.default_rng(number), self.engine._parameters
        uploads = []
        for _ in range(size or parameters.cohort):
            delta = rng.normal(size=len(self.model)) * 1.6 / len(self.model) ** 0.5
            if parameters.personal:
                scores = {"embedding": rng.normal(size=parameters.embedding)}
                scores["embedding"] /= np.linalg.norm(scores["embedding"])
            else:
                scores = {"balance": rng.random(), "fairness": rng.random() * parameters.fairness_max}
            uploads.append(LocalUpdate(delta, FORMAT.norm(FORMAT.encode_update(delta)), scores))
        return uploads

    def seal(self, number, slot, client, upload, key=b""):
        return self.engine.encoder(upload, Place(number, slot, client), key)

    def round(self, bad, cohort=COHORT, terms=None):
        """One round in which `bad` maps slots to what makes another upload of (round, slot, client, good one).

        Checks that exactly these are left out, and that the model is what float64 gives for the others. Returns the
        aggregation.
        """
        number, size = next(self._numbers), len(cohort)
        self.engine.prepare(number, size, terms)
        plain = self.plain(number, size)
        for slot, client in enumerate(cohort):
            good = self.seal(number, slot, client, plain[slot])
            if slot not in bad:
                self.engine.submit(number, slot, client, good)
            elif bad[slot] is not None:
                self.engine.submit(number, slot, client, bad[slot](self, number, slot, client, good))
        result = self.engine.aggregate(number, list(cohort))
        assert result.left_out.keys() == bad.keys()
        rest = [upload for slot, upload in enumerate(plain) if slot not in bad]
        clip_norm = 1.0 if terms is None else terms.clip_norm
        expected = float64_aggregate(self.model, self.engine._parameters, clip_norm, rest)
        noise = 0.0 if terms is None else 20 * terms.noise_stddev
        assert np.abs(result.parameters - expected).max() <= f2gnn_bound(FORMAT, max(1, len(rest)), 2.0) + noise
        self.model = result.parameters
        return result


@pytest.fixture(scope="module")
def running():
    with engine_of(EmbeddedEngine, PARAMETERS, FORMAT, clip_norm=1.0, timeout_sec=30.0) as engine:
        yield Running(engine)


def resealed(self, contents):
    return tuple(seal(content, key) for content, key in zip(contents, self.engine.encoder.public_keys, strict=True))


def opened(self, number, slot, client):
    """A client's upload before it is sealed."""
    headers = [Header(self.engine.encoder.run, number, slot, client, server) for server in (0, 1)]
    layout = self.engine.layout
    return share_update(np.zeros(layout.parameters, np.uint64), [0.5] * layout.scores, headers, layout)


def for_another(**place):
    def make(self, number, slot, client, good):
        at = {"number": number, "slot": slot, "client": client} | {k: v(number) for k, v in place.items()}
        return self.seal(at["number"], at["slot"], at["client"], self.plain(number)[slot])

    return make


def torn(self, number, slot, client, good):
    return good[0], self.seal(number, slot, client, self.plain(number)[slot])[1]


def double_faced(self, number, slot, client, good):
    """Two halves of one upload, but the tag differs in one bit."""
    first, second = opened(self, number, slot, client)
    changed = bytearray(second)
    changed[HEADER_BYTES] ^= 1
    return resealed(self, (first, bytes(changed)))


def garbage_inside(self, number, slot, client, good):
    rng = np.random.default_rng(number)
    return resealed(self, [rng.bytes(len(content)) for content in opened(self, number, slot, client)])


def answer_inside(self, number, slot, client, good):
    first, second = opened(self, number, slot, client)
    header = Header(self.engine.encoder.run, number, slot, client, 0)
    return resealed(self, (pack(header, {"all": first[HEADER_BYTES:]}, "answer"), second))


def flipped(part):
    return part[:-1] + bytes([part[-1] ^ 1])


LENGTH = r"its upload is not two envelopes of \d+ and \d+ bytes"
DAMAGED = "the envelope is damaged or sealed to another key"
ATTACKS = {
    "one byte missing": (lambda *a: (a[-1][0][:-1], a[-1][1]), LENGTH),
    "one byte more": (lambda *a: (a[-1][0], a[-1][1] + b"\0"), LENGTH),
    "40 MB of empty maps": (lambda *a: (b"\x80" * 40_000_000, a[-1][1]), LENGTH),
    "nothing in it": (lambda *a: (b"", b""), LENGTH),
    "one envelope": (lambda *a: a[-1][:1], LENGTH),
    "three envelopes": (lambda *a: (*a[-1], b""), LENGTH),
    "more than envelopes": (lambda *a: (*a[-1], 5), LENGTH),
    "numbers": (lambda *a: (1, 2), LENGTH),
    "a list": (lambda *a: list(a[-1]), LENGTH),
    "none": (lambda *a: None, LENGTH),
    "text": (lambda *a: tuple("x" * len(part) for part in a[-1]), LENGTH),
    "the other server's half": (lambda *a: a[-1][::-1], LENGTH),
    "damaged at server 0": (lambda *a: (flipped(a[-1][0]), a[-1][1]), DAMAGED),
    "damaged at server 1": (lambda *a: (a[-1][0], flipped(a[-1][1])), DAMAGED),
    "damaged at both": (lambda *a: tuple(map(flipped, a[-1])), DAMAGED),
    "bytes of the right length": (lambda *a: tuple(bytes(len(part)) for part in a[-1]), DAMAGED),
    "another client's": (for_another(client=lambda _: 8), "the upload is meant for another client 8 instead of 7"),
    "another slot's": (for_another(slot=lambda _: 0), "the upload is meant for another slot 0 instead of 1"),
    "the next round's": (for_another(number=lambda n: n + 1), "the upload is meant for another round"),
    "the last round's": (for_another(number=lambda n: n - 1), "the upload is meant for another round"),
    "torn": (torn, "the halves for both servers are not of one upload"),
    "double-faced": (double_faced, "the halves for both servers are not of one upload"),
    "garbage inside": (garbage_inside, "the upload has another format"),
    "an answer inside": (answer_inside, "the upload has another format"),
    "nothing": (None, "nothing arrived"),
}


@pytest.mark.parametrize("attack", ATTACKS)
def test_a_bad_upload_costs_its_client_alone(running, attack):
    make, reason = ATTACKS[attack]
    result = running.round({BAD: make})
    assert set(result.left_out) == {BAD}
    assert re.search(reason, result.left_out[BAD])
    assert running.round({}).left_out == {}


def test_an_upload_of_an_earlier_start_costs_its_client(running):
    with engine_of(EmbeddedEngine, PARAMETERS, FORMAT, clip_norm=1.0, timeout_sec=30.0) as other:
        earlier = Running(other)
        result = running.round({BAD: lambda self, n, s, c, good: earlier.seal(n, s, c, self.plain(n)[s])})
    assert result.left_out == {BAD: DAMAGED}


def test_the_first_upload_of_a_client_counts(running):
    def twice(self, number, slot, client, good):
        self.engine.submit(number, slot, client, good)
        return self.seal(number, slot, client, self.plain(number + 1000)[slot])  # would move the model elsewhere

    number = next(running._numbers)
    running.engine.prepare(number, len(COHORT))
    plain = running.plain(number)
    for slot, client in enumerate(COHORT):
        good = running.seal(number, slot, client, plain[slot])
        running.engine.submit(number, slot, client, twice(running, number, slot, client, good) if slot == BAD else good)
    result = running.engine.aggregate(number, list(COHORT))
    expected = float64_aggregate(running.model, PARAMETERS, 1.0, plain)
    assert not result.left_out
    assert np.abs(result.parameters - expected).max() <= f2gnn_bound(FORMAT, len(COHORT), 2.0)
    running.model = result.parameters


def test_all_but_one_may_be_left_out_for_different_reasons(running):
    bad = {slot: ATTACKS[name][0] for slot, name in enumerate(("torn", "nothing", "damaged at server 1"))}
    reasons = running.round(bad).left_out
    assert list(reasons) == [0, 1, 2]
    assert len(set(reasons.values())) == 3


def test_with_nobody_left_the_model_stays(running):
    before = running.model
    result = running.round(dict.fromkeys(range(4), ATTACKS["damaged at server 0"][0]))
    np.testing.assert_allclose(result.parameters, before, rtol=0, atol=FORMAT.dither_bound)
    running.round({})


@pytest.mark.parametrize("attack", ["torn", "nothing", "damaged at server 1"])
def test_norms_are_counted_and_noise_is_added_over_those_who_remain(running, attack):
    make = ATTACKS[attack][0]
    assert running.round({BAD: make}, terms=Terms(60.0, count_stddev=0.0)).within == 3
    assert running.round({0: make, 3: make}, terms=Terms(60.0, 1e-3, count_stddev=0.0)).within == 2
    nobody = running.round(dict.fromkeys(range(4), make), terms=Terms(60.0, 1e-3, count_stddev=0.0))
    assert nobody.within == 0


@pytest.mark.parametrize("program", ["scalar-first", "faithful"])
@pytest.mark.parametrize("preprocessing", ["ot", "dealer"])
def test_every_program_goes_on_with_fewer(program, preprocessing):
    options = {"program": program, "preprocessing": preprocessing}
    with engine_of(EmbeddedEngine, PARAMETERS, FORMAT, clip_norm=1.0, timeout_sec=30.0, **options) as engine:
        running = Running(engine)
        for bad in (
            {BAD: torn},
            {0: None, 3: ATTACKS["damaged at server 1"][0]},
            {},
            dict.fromkeys(range(4), None),
            {2: garbage_inside},
        ):
            running.round(bad)


def test_a_mean_is_that_of_those_who_remain():
    """Of the rules this one depends most on how many they are."""
    parameters = RoundParameters("fedavg", 4, ratio_max=64.0)
    with engine_of(EmbeddedEngine, parameters, FORMAT, clip_norm=1.0, timeout_sec=30.0) as engine:
        running = Running(engine)
        for bad in ({BAD: torn}, {}, {0: None, 1: None, 3: None}):
            running.round(bad)


def test_too_few_clients_are_an_error_that_names_them_and_the_setting_and_the_next_round_works():
    with engine_of(EmbeddedEngine, PARAMETERS, FORMAT, clip_norm=1.0, timeout_sec=30.0, min_cohort=3) as engine:
        running = Running(engine)
        running.round({BAD: torn})
        with pytest.raises(CohortError) as caught:
            running.round({0: torn, 2: None})
        assert (caught.value.peer, caught.value.phase, caught.value.round) == ("clients 4, 9", "upload", 2)
        assert caught.value.reason == (
            "the halves for both servers are not of one upload; "
            "2 of 4 clients remain, fewer than federation.min_cohort = 3"
        )
        running.round({}, cohort=(1, 2, 3))
        with pytest.raises(CohortError, match=r"cohort: 2 were asked; 2 of 2 clients remain"):
            running.round({}, cohort=(1, 2))
        running.round({0: ATTACKS["numbers"][0]})


@pytest.mark.parametrize("waiting", [0, 1 << 22])
def test_uploads_are_absorbed_while_others_still_come(monkeypatch, waiting):
    """By default when 4 MiB wait: here d is large enough, or the limit small."""
    monkeypatch.setattr(engine_module, "_WAITING_BYTES", waiting)
    parameters, model = replace(PARAMETERS, cohort=6), np.linspace(-1, 1, 90_000 if waiting else 30)
    with engine_of(EmbeddedEngine, parameters, FORMAT, clip_norm=1.0, timeout_sec=60.0) as engine:
        running, orders, send = Running(engine, model), [], engine._send
        monkeypatch.setattr(engine, "_send", lambda order, *to: (orders.append(order), send(order, *to)))
        for _ in range(2):
            running.round({0: torn, 5: ATTACKS["damaged at server 0"][0], 2: None}, cohort=range(6))
        settled = [len(order.places) for order in orders if isinstance(order, Settle)]
        assert settled == ([3, 3] if waiting else [1] * 10)


def test_what_comes_after_its_place_was_settled_is_dropped(running):
    number = next(running._numbers)
    engine, plain = running.engine, running.plain(number)
    engine.prepare(number, len(COHORT))
    engine._send(Settle(number, [(BAD, COHORT[BAD])]))
    for slot, client in enumerate(COHORT):
        engine.submit(number, slot, client, running.seal(number, slot, client, plain[slot]))
    engine._unsettled = []
    result = engine.aggregate(number, list(COHORT))
    assert result.left_out == {BAD: "nothing arrived"}
    running.model = result.parameters


def test_a_server_refuses_by_length_what_the_coordinator_has_let_pass(running):
    number = next(running._numbers)
    engine, plain = running.engine, running.plain(number)
    engine.prepare(number, len(COHORT))
    for slot, client in enumerate(COHORT):
        sealed = running.seal(number, slot, client, plain[slot])
        for k, channel in enumerate(engine._channels.values()):
            envelope = sealed[k] if (slot, k) != (BAD, 0) else sealed[k] + b"\0"
            engine._send(Submit(number, slot, client, envelope), channel)
    result = engine.aggregate(number, list(COHORT))
    assert list(result.left_out) == [BAD] and "bytes, expected" in result.left_out[BAD]
    running.model = result.parameters


# What correlations serve.


def test_correlations_for_more_clients_serve_fewer_but_where_fewer_need_more():
    narrow, wide = RoundParameters("f2gnn", 1, ratio_max=64.0), RoundParameters("f2gnn", 1, fairness_max=1e5)
    for rule, asked, present, fits in (
        (narrow, 33, 32, True),
        (narrow, 17, 16, True),
        (wide, 33, 32, False),
        (wide, 17, 16, False),
        (wide, 16, 15, True),
        (PERSONAL, 17, 16, False),
        (PERSONAL, 5, 3, True),
    ):
        needed = [demand(replace(rule, cohort=size), 30) for size in (present, asked)]
        assert needed[0].within(needed[1]) == fits, (rule, asked, present)


@pytest.mark.parametrize(
    ("asked", "missing", "scores_max", "makes"),
    [(6, 2, 2.0, 1), (17, 1, 2.0, 1), (17, 1, 1e5, 2), (33, 1, 1e5, 2), (6, 3, 1e5, 1)],
)
def test_a_round_with_fewer_makes_new_correlations_only_where_it_must(asked, missing, scores_max, makes):
    """The dealer's messages are counted: server 1's are a length prefix and as long as the demand says."""
    parameters = RoundParameters("f2gnn", asked, fairness_max=scores_max)
    present = replace(parameters, cohort=asked - missing)
    with engine_of(EmbeddedEngine, parameters, FORMAT, timeout_sec=60.0, preprocessing="dealer") as engine:
        running = Running(engine, MODEL[:4])
        result = running.round(dict.fromkeys(range(missing), None), cohort=range(asked), terms=Terms())
        made = [parameters, present][:makes]
        assert result.cost.preprocessing_bytes[1] == sum(demand(one, 4).message_bytes(1) + 4 for one in made)
        running.round({}, cohort=range(asked), terms=Terms())


def test_a_personal_round_of_16_of_17_makes_new_correlations():
    parameters = replace(PERSONAL, cohort=17)
    with engine_of(EmbeddedEngine, parameters, FORMAT, timeout_sec=60.0, preprocessing="dealer") as engine:
        running = Personal(engine)
        result = running.round({3: None}, size=17)
        made = parameters, replace(parameters, cohort=16)
        assert result.cost.preprocessing_bytes[1] == sum(demand(one, 30).message_bytes(1) + 4 for one in made)


# Personal rules.

PERSONAL = RoundParameters("fedpub", 5, embedding=4)


class Personal(Running):
    def round(self, bad, size=5, keys=None):
        number = next(self._numbers)
        self.engine.prepare(number, size)
        plain, keypairs = self.plain(number, size), [Keypair() for _ in range(size)]
        for slot in range(size):
            key = (keys or {}).get(slot, keypairs[slot].public_key)
            if slot in bad and bad[slot] is None:
                continue
            try:
                good = self.seal(number, slot, 10 + slot, plain[slot], key)
            except ValueError:  # an honest encoder does not make it
                good = None
            upload = bad[slot](self, number, slot, 10 + slot, good) if slot in bad else good
            self.engine.submit(number, slot, 10 + slot, upload)
        result = self.engine.aggregate(number, range(10, 10 + size))
        assert result.left_out.keys() == bad.keys()
        rest = [slot for slot in range(size) if slot not in bad]
        assert list(result.answers) == rest
        decoder = self.engine.decoder
        models = [decoder(result.answers[slot], keypairs[slot], Place(number, slot, 10 + slot)) for slot in rest]
        if rest:
            _, expected = float64_personal(MODEL, PERSONAL, [plain[slot] for slot in rest])
            error = replace(PERSONAL, cohort=len(rest)).similarities.error_ulp * 2.0**-32
            bound = FORMAT.error_bound(len(rest), 4.0, factors=error)
            assert np.abs(np.array(models) - expected).max() <= bound
        return result


@pytest.mark.parametrize("preprocessing", ["ot", "dealer"])
@pytest.mark.parametrize("waiting", [0, 1 << 22])
def test_a_personal_round_goes_on_with_fewer(monkeypatch, preprocessing, waiting):
    monkeypatch.setattr(engine_module, "_WAITING_BYTES", waiting)
    with engine_of(EmbeddedEngine, PERSONAL, FORMAT, timeout_sec=30.0, preprocessing=preprocessing) as engine:
        running = Personal(engine)
        damaged = ATTACKS["damaged at server 1"][0]
        for bad in ({1: None, 3: damaged}, {}, {0: torn_personal}, dict.fromkeys(range(4), None), {4: damaged}):
            running.round(bad)
        nobody = running.round(dict.fromkeys(range(5), None))
        assert nobody.answers == {} and nobody.cost.download_bytes == 0
        running.round({2: None}, size=3)


def torn_personal(self, number, slot, client, good):
    return good[0], self.seal(number, slot, client, self.plain(number)[slot], Keypair().public_key)[1]


@pytest.mark.parametrize(
    ("key", "reason"),
    [(b"", LENGTH), (bytes(31), LENGTH), (bytes(32), "its reply key is none")],
)
def test_a_client_without_a_usable_reply_key_is_left_out_of_everybodys_model(key, reason):
    with engine_of(EmbeddedEngine, PERSONAL, FORMAT, timeout_sec=30.0) as engine:
        result = Personal(engine).round({2: lambda *a: a[-1]}, keys={2: key})
    assert re.fullmatch(reason, result.left_out[2])


def test_too_few_in_a_personal_round_are_an_error():
    with engine_of(EmbeddedEngine, PERSONAL, FORMAT, timeout_sec=30.0, min_cohort=4) as engine:
        running = Personal(engine)
        with pytest.raises(CohortError, match=r"clients 10, 11: nothing arrived; 3 of 5 clients remain"):
            running.round({0: None, 1: None})
        running.round({0: None})


def test_servers_that_leave_out_different_clients_are_a_disagreement(running, monkeypatch):
    """What the servers' agreement excludes; the coordinator looks all the same."""
    replies = [{"type": "result", "left_out": [[1, "x"]]}, {"type": "result", "left_out": []}]
    with pytest.raises(Exception, match="leaves out other clients than server 0") as caught:
        running.engine._leave_out(replies)
    assert caught.value.peer == "server 1"
    assert Aggregate(1, []).message() == {"type": "aggregate", "round": 1, "cohort": []}
