"""A coordinator that lies is refused by name, and nothing leaves."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest

from orchestrator.agreement.from_settings import plan_of
from orchestrator.agreement.terms import Offer
from orchestrator.client import sealing
from orchestrator.site.messages import Begin, Done, Refused, Train, Upload, parse_reply
from orchestrator.wire.envelope import Keypair
from tests.site.hospitals import NOISE, settings

pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.fixture
def worker(hospitals, tmp_path):
    return hospitals.worker(tmp_path)


def asked(worker, message):
    return parse_reply(worker.reply(message.to_bytes()))


def refused(worker, offer, text):
    """Neither consent nor an upload is to be had on this offer."""
    data = offer if isinstance(offer, bytes) else offer.to_bytes()
    for message in (Begin(data), Train(data, 1, 0, 3, None, bytes(8))):
        reply = asked(worker, message)
        assert isinstance(reply, Refused) and text in reply.reason, reply


def agreed(worker, offer):
    assert asked(worker, Begin(offer.to_bytes())) == Done()


def order(offer, model, **changed):
    fields = {"offer": offer.to_bytes(), "round": 1, "slot": 0, "cohort": 3, "clip_norm": None}
    return Train(**{**fields, "model": model, **changed})


def model_of(hospitals, config, value=0.01):
    return np.full(hospitals.length(config), value).astype("<f8").tobytes()


def test_an_honest_run_is_taken_part_in(hospitals, worker):
    config = settings()
    offer = hospitals.offer(hospitals.terms(config))
    agreed(worker, offer)
    reply = asked(worker, order(offer, model_of(hospitals, config)))
    assert isinstance(reply, Upload) and all(len(envelope) > 100 for envelope in reply.envelopes)


def test_keys_that_are_not_the_aggregators_are_refused(hospitals, worker):
    terms = hospitals.terms(settings())
    honest = hospitals.offer(terms)
    own = Keypair().public_key
    refused(worker, replace(honest, keys=(own, honest.keys[1])), "not signed by aggregator uni-x (server 0)")
    refused(worker, replace(honest, keys=(honest.keys[0], own)), "not signed by aggregator uni-y (server 1)")
    refused(worker, replace(honest, keys=honest.keys[::-1]), "not signed by aggregator uni-x")
    refused(worker, replace(honest, run=b"s" * 16), "not signed by aggregator uni-x")
    refused(worker, hospitals.offer(terms, signers=("hub", "uni-y")), "not signed by aggregator uni-x")
    refused(worker, hospitals.offer(terms, signers=("uni-x", "uni-x")), "not signed by aggregator uni-y")


def test_one_aggregators_signature_serves_neither_the_other_place_nor_another_purpose(hospitals, worker):
    terms = hospitals.terms(settings()).to_bytes()
    key = Keypair().public_key
    honest = hospitals.offer(terms, keys=(key, key))
    agreed(worker, honest)
    swapped = hospitals.offer(terms, keys=(key, key), signers=("uni-y", "uni-x"))
    refused(worker, replace(honest, signatures=swapped.signatures[::-1]), "not signed by aggregator uni-x")
    other = hospitals.keys["uni-x"].sign(b"safegnn upload 1", b"x")
    refused(worker, replace(honest, signatures=(other, honest.signatures[1])), "not signed by aggregator uni-x")


def test_terms_that_were_changed_are_refused(hospitals, worker):
    honest = hospitals.offer(hospitals.terms(settings()))
    changed = honest.terms.replace(b'"rounds":3,"run"', b'"rounds":9,"run"')
    assert changed != honest.terms
    refused(worker, replace(honest, terms=changed), "not signed by aggregator uni-x")


def test_another_roster_is_refused(hospitals, worker):
    refused(worker, hospitals.offer(hospitals.terms(settings(), consortium="0" * 64)), "the run is of the roster 0000")


@pytest.mark.parametrize(
    ("lie", "text"),
    [
        ({"clip_norm": 9.0}, "has clip_norm = 9.0, and the run's settings make it 1.0"),
        ({"min_cohort": 1}, "has min_cohort = 1, and the run's settings make it 3"),
        ({"sampling": "cyclic"}, "has sampling = cyclic"),
        ({"accumulates": False}, "has accumulates = False"),
        ({"stateful": False}, "has stateful = False"),
        ({"bands": (3,)}, "has bands = (3,)"),
        ({"clients": 4}, "has clients = 4"),
    ],
)
def test_a_plan_that_is_not_the_settings_is_refused_by_name(hospitals, worker, lie, text):
    config = settings("privacy.clip_norm=1.0")
    refused(worker, hospitals.offer(hospitals.terms(config, plan=replace(plan_of(config), **lie))), text)


def test_less_noise_than_the_settings_say_is_refused(hospitals, worker):
    config = settings(*NOISE)
    plan = plan_of(config)
    lies = replace(plan, noise=replace(plan.noise, multiplier=0.1))
    refused(worker, hospitals.offer(hospitals.terms(config, plan=lies)), "has noise.multiplier = 0.1")


def test_less_noise_than_the_policy_asks_for_is_refused_in_its_words(hospitals, tmp_path):
    worker = hospitals.worker(tmp_path, policy='{"noise_multiplier": 1}')
    refused(worker, hospitals.offer(hospitals.terms(settings())), "needs noise_multiplier >= 1, the run says 0")
    agreed(worker, hospitals.offer(hospitals.terms(settings(*NOISE))))


def test_a_smaller_cohort_than_the_policy_asks_for_is_refused(hospitals, tmp_path):
    worker = hospitals.worker(tmp_path, policy='{"min_cohort": 3}')
    offer = hospitals.offer(hospitals.terms(settings("federation.min_cohort=2")))
    refused(worker, offer, "needs min_cohort >= 3, the run says 2")


def test_a_run_for_more_epsilon_than_the_policy_allows_is_refused(hospitals, tmp_path):
    worker = hospitals.worker(tmp_path, policy='{"largest_epsilon": 0.5}')
    refused(worker, hospitals.offer(hospitals.terms(settings(*NOISE))), "needs largest_epsilon <= 0.5")


@pytest.mark.parametrize(
    ("lie", "text"),
    [
        ({"cohort": 2}, "the round asks 2 clients, and the plan has cohorts of 3"),
        ({"cohort": 4}, "the round asks 4 clients, and the plan has cohorts of 3"),
        ({"slot": 3}, "place 3 of 3 clients is none"),
        ({"round": 0}, "there is no round 0: the run has 3"),
        ({"round": 4}, "there is no round 4: the run has 3"),
        ({"clip_norm": 2.0}, "the round clips at 2.0, and the plan at None"),
    ],
)
def test_a_round_that_the_plan_has_not_is_refused(hospitals, worker, lie, text):
    config = settings()
    offer = hospitals.offer(hospitals.terms(config))
    reply = asked(worker, order(offer, model_of(hospitals, config), **lie))
    assert isinstance(reply, Refused) and text in reply.reason
    assert isinstance(asked(worker, order(offer, model_of(hospitals, config))), Upload)  # and it goes on


def test_a_poisson_cohort_may_have_any_size_that_the_plan_releases(hospitals, worker):
    config = settings("federation={sampling: poisson, cohort: 2, min_cohort: 2}")
    offer = hospitals.offer(hospitals.terms(config))
    for size, text in ((1, "fewer than the plan's min_cohort = 2"), (4, "place 0 of 4 clients is none among 3")):
        reply = asked(worker, order(offer, model_of(hospitals, config), cohort=size))
        assert isinstance(reply, Refused) and text in reply.reason
    assert isinstance(asked(worker, order(offer, model_of(hospitals, config), cohort=3)), Upload)
    assert isinstance(asked(worker, order(offer, model_of(hospitals, config), cohort=2, round=2)), Upload)


def test_a_fixed_clip_bound_stays_and_one_that_follows_a_quantile_keeps_its_limits(hospitals, worker):
    fixed = settings("privacy.clip_norm=1.0")
    offer = hospitals.offer(hospitals.terms(fixed))
    for bound in (None, 0.5, 1e9):
        reply = asked(worker, order(offer, model_of(hospitals, fixed), clip_norm=bound))
        assert isinstance(reply, Refused) and "and the plan at 1.0" in reply.reason
    moving = settings("privacy={clip_norm: 1.0, clip: quantile}")
    offer = hospitals.offer(hospitals.terms(moving))
    low, high = plan_of(moving).clip_limits()
    for bound in (None, low / 2, 2 * high):
        reply = asked(worker, order(offer, model_of(hospitals, moving), clip_norm=bound))
        assert isinstance(reply, Refused) and "and the plan at 1.0" in reply.reason
    assert isinstance(asked(worker, order(offer, model_of(hospitals, moving), clip_norm=0.7)), Upload)


def test_a_site_adds_its_part_of_the_noise_where_clients_do(hospitals, worker, monkeypatch):
    drawn, draw = [], sealing.noise_ring64
    monkeypatch.setattr(sealing, "noise_ring64", lambda *said: drawn.append(said) or draw(*said))
    config = settings(*NOISE, "privacy.noise=clients", "method.name=fedavg")
    offer, plan = hospitals.offer(hospitals.terms(config)), plan_of(config)
    reply = asked(worker, order(offer, model_of(hospitals, config), clip_norm=1.0))
    assert isinstance(reply, Upload)
    assert drawn == [(hospitals.length(config), plan.terms.client_stddev, 57)] and plan.terms.client_stddev > 0


def test_a_model_of_another_length_or_with_nan_is_refused(hospitals, worker):
    config = settings()
    offer, model = hospitals.offer(hospitals.terms(config)), model_of(hospitals, config)
    for bad in (b"", model[:-1], model[:-8], model + bytes(8)):
        reply = asked(worker, order(offer, bad))
        assert isinstance(reply, Refused) and f"a model of {len(bad)} bytes, expected {len(model)}" in reply.reason
    for value in (np.nan, np.inf, -np.inf):
        reply = asked(worker, order(offer, model[:-8] + np.float64(value).tobytes()))
        assert isinstance(reply, Refused) and "a model with NaN or infinity" in reply.reason


def test_a_run_of_other_data_is_refused(hospitals, worker):
    config = settings()
    terms = hospitals.terms(config, length=hospitals.length(config) + 1)
    refused(worker, hospitals.offer(terms), "the features, classes or groups differ")


def test_what_sites_cannot_do_is_refused_by_name(hospitals, worker):
    for override, text in (
        ("engine.name=plaintext", "engine.name = plaintext (sites hand out sealed envelopes only"),
        ("federation.sampling=with_replacement", "federation.sampling = with_replacement"),
        ("evaluation.where=whole_graph", "evaluation.where = whole_graph (nobody holds the whole graph"),
        ("clients.partition=disjoint", "clients.partition = disjoint"),
    ):
        refused(worker, hospitals.offer(hospitals.terms(settings(override))), text)
    two = settings("clients.count=2", "federation.cohort=2")
    refused(worker, hospitals.offer(hospitals.terms(two)), "the run has 2 clients, and the roster 3 sites")


def test_settings_that_are_none_are_refused(hospitals, worker):
    tree = json.loads(hospitals.terms(settings()).to_bytes())
    tree["settings"]["method"]["alfa"] = 1
    data = json.dumps(tree, sort_keys=True, separators=(",", ":")).encode()
    refused(worker, hospitals.offer(data), "alfa")


def test_exact_counts_stay_where_the_owner_says_so(hospitals, tmp_path):
    each = settings("evaluation={where: clients, tables: each}")
    silent = hospitals.worker(tmp_path / "1")
    refused(silent, hospitals.offer(hospitals.terms(each)), "exact counts of its own nodes would leave it")
    open_one = hospitals.worker(tmp_path / "2", policy='{"exact_metrics": true}')
    agreed(open_one, hospitals.offer(hospitals.terms(each)))
    noisy = settings("evaluation={where: clients, tables: each, exact_beside_noise: true}", *NOISE)
    refused(open_one, hospitals.offer(hospitals.terms(noisy)), "no part of the epsilon that it counts")
    agreed(silent, hospitals.offer(hospitals.terms(settings("evaluation={where: clients, tables: summed}"))))


def test_a_site_with_a_limit_takes_part_in_nothing_that_it_cannot_count(hospitals, tmp_path):
    worker = hospitals.worker(tmp_path, ledger_limit=8)
    refused(worker, hospitals.offer(hospitals.terms(settings())), "needs an epsilon that its ledger can count")


def test_a_cut_offer_is_refused(hospitals, worker):
    data = hospitals.offer(hospitals.terms(settings())).to_bytes()
    for cut in (b"", data[:100], data[:208]):
        refused(worker, cut, f"the offer has {len(cut)} bytes")
    refused(worker, data[:-1], "not signed by aggregator uni-x")
    assert Offer.from_bytes(data).to_bytes() == data
