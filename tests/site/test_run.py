"""A site answers a round once, keeps its own state and ledger, and says nothing of its data."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest

from orchestrator.agreement.evaluation_sum import counts_layout, summed_tables
from orchestrator.agreement.identity import verify
from orchestrator.agreement.sum_plan import sum_plan
from orchestrator.client.ledger import read_ledger
from orchestrator.errors import DataError, RunError
from orchestrator.methods import create
from orchestrator.methods.f2gnn import F2GNN
from orchestrator.secure_sum import Sizes
from orchestrator.site import memory
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
    Refused,
    Upload,
    parse_reply,
)
from tests.site.hospitals import NOISE, RUN, settings
from tests.site.session import Session, sum_offer

pytestmark = pytest.mark.usefixtures("one_thread")


def asked(worker, message):
    return parse_reply(worker.reply(message.to_bytes()))


@pytest.fixture
def session(hospitals):
    return Session(hospitals, settings())


@pytest.fixture
def worker(hospitals, tmp_path):
    return hospitals.worker(tmp_path)


# One round, one upload


def test_the_same_order_gets_the_same_bytes_and_another_one_none(session, worker):
    request = session.train(1).to_bytes()
    first = worker.reply(request)
    assert isinstance(parse_reply(first), Upload) and worker.reply(request) == first
    for other in ({"slot": 1}, {"model": bytes(8 * len(session.model))}):
        reply = asked(worker, session.train(1, **other))
        assert reply == Refused("round 1 was answered already; a round has one upload")
    assert worker.reply(request) == first
    assert isinstance(asked(worker, session.train(2)), Upload)
    assert parse_reply(worker.reply(request)) == Refused("round 1 was answered already; a round has one upload")


def test_a_site_that_was_started_again_answers_no_round_twice(session, worker, hospitals, tmp_path):
    request = session.train(1).to_bytes()
    assert isinstance(parse_reply(worker.reply(request)), Upload)
    again = hospitals.worker(tmp_path)
    assert parse_reply(again.reply(request)) == Refused("round 1 was answered already; a round has one upload")
    assert isinstance(asked(again, session.train(2)), Upload)


def test_rounds_of_another_session_are_its_own(session, worker, hospitals):
    assert isinstance(asked(worker, session.train(2)), Upload)
    other = Session(hospitals, settings(), run=b"s" * 16)
    assert isinstance(asked(worker, other.train(1)), Upload)
    assert isinstance(asked(worker, session.train(1)), Refused)


def test_what_cannot_be_kept_is_not_answered(session, worker, tmp_path, monkeypatch):
    assert isinstance(asked(worker, session.train(1)), Upload)

    def full(path, write):
        raise RunError(f"{path}: cannot be written: No space left on device; the previous version stands")

    monkeypatch.setattr(memory, "write_atomically", full)
    assert isinstance(asked(worker, session.train(2)), Failed)
    monkeypatch.undo()
    deltas = expected(session.hospitals, session.config, (1, 2), session.model)
    assert close(session, asked(worker, session.train(2)), deltas[2], 2)


# State


def expected(hospitals, config, rounds, model, client=0):
    made = create(hospitals.graphs[client].scaled_to_train(), config, client)
    updates = {}
    for round in rounds:
        updates[round] = made.train(model).delta
    return updates


def close(session, reply, delta, round):
    update, _ = session.update(reply, round)
    return np.abs(update - delta).max() <= 2.0**-25


def test_a_site_trains_as_a_simulated_client_of_the_same_seed(hospitals, session, worker):
    deltas = expected(hospitals, session.config, (1, 2), session.model)
    for round in (1, 2):
        assert close(session, asked(worker, session.train(round)), deltas[round], round)


def test_a_site_that_was_started_again_goes_on_where_it_stood(hospitals, session, worker, tmp_path):
    deltas = expected(hospitals, session.config, (1, 2, 3), session.model)
    assert not np.allclose(deltas[1], deltas[2], atol=1e-4)  # it does keep state
    asked(worker, session.train(1))
    again = hospitals.worker(tmp_path)
    assert close(session, asked(again, session.train(2)), deltas[2], 2)
    assert close(session, asked(hospitals.worker(tmp_path), session.train(3)), deltas[3], 3)


def test_a_round_that_is_repeated_in_a_new_session_starts_from_before_it(hospitals, session, worker):
    deltas = expected(hospitals, session.config, (1, 2), session.model)
    for round in (1, 2):
        asked(worker, session.train(round))
    resumed = Session(hospitals, session.config, run=b"s" * 16)
    assert close(resumed, asked(worker, resumed.train(2)), deltas[2], 2)
    third = Session(hospitals, session.config, run=b"t" * 16)
    assert close(third, asked(worker, third.train(2)), deltas[2], 2)


def test_another_run_starts_afresh_and_leaves_the_first_ones_state(hospitals, session, worker):
    deltas = expected(hospitals, session.config, (1, 2), session.model)
    asked(worker, session.train(1))
    second = Session(hospitals, session.config, run=b"s" * 16)
    second.terms = replace(second.terms, run="cd" * 16)
    keys = (second.keypairs[0].public_key, second.keypairs[1].public_key)
    second.offer = hospitals.offer(second.terms, run=b"s" * 16, keys=keys)
    assert close(second, asked(worker, second.train(1)), deltas[1], 1)
    assert close(session, asked(worker, session.train(2)), deltas[2], 2)


def test_a_site_without_a_public_seed_and_one_with_noise_have_their_own(hospitals, tmp_path):
    public = settings()
    own = Session(hospitals, public, seed=None)
    reply = asked(hospitals.worker(tmp_path / "1"), own.train(1))
    [delta] = expected(hospitals, public, (1,), own.model).values()
    assert not np.allclose(own.update(reply, 1)[0], delta, atol=1e-6)
    noisy = Session(hospitals, settings(*NOISE))
    reply = asked(hospitals.worker(tmp_path / "2"), noisy.train(1))
    [delta] = expected(hospitals, noisy.config, (1,), noisy.model).values()
    assert not np.allclose(noisy.update(reply, 1)[0], delta, atol=1e-6)


def test_files_are_the_owners_alone(session, worker, tmp_path):
    asked(worker, session.train(1))
    kept = [path for path in (tmp_path / "clinic-a" / "state").rglob("*") if path.name != "site.yaml"]
    assert {path.name for path in kept} >= {"runs", RUN, "progress.json", "state-1.npz"}
    assert all(path.stat().st_mode & 0o077 == 0 for path in kept)


# Signatures


def test_both_halves_of_an_upload_are_signed_by_the_site(hospitals, session, worker):
    _, signed = session.update(asked(worker, session.train(1)), 1)
    certificate = hospitals.roster.site(0).certificate
    assert all(verify(certificate, b"safegnn upload 1", message, signature) for message, signature in signed)
    assert not verify(certificate, b"safegnn upload 1", signed[0][0], signed[1][1])


# Ledger


def test_what_is_asked_is_counted_before_it_leaves(hospitals, tmp_path):
    noisy, worker = Session(hospitals, settings(*NOISE)), hospitals.worker(tmp_path)
    ledger = tmp_path / "clinic-a" / "data.ledger"
    assert asked(worker, Announce(noisy.offer.to_bytes(), 1)) == Done()
    assert isinstance(asked(worker, noisy.train(2)), Upload)
    [entry] = read_ledger(ledger).values()
    assert entry.budget.last == 2 and entry.rounds == {2}
    resumed = Session(hospitals, settings(*NOISE), run=b"s" * 16)
    assert isinstance(asked(worker, resumed.train(2)), Upload)
    [(name, entry)] = read_ledger(ledger).items()
    assert name == RUN and entry.budget.state()["attempts"] == [1, 2]


def test_a_ledger_without_room_refuses_and_says_nothing_of_other_runs(hospitals, tmp_path):
    noisy = Session(hospitals, settings(*NOISE))
    one = noisy.plan.privacy.epsilon(1)
    worker = hospitals.worker(tmp_path, ledger_limit=one * 1.01)
    assert isinstance(asked(worker, noisy.train(1)), Upload)
    said = []
    reply = parse_reply(worker.reply(noisy.train(2).to_bytes(), said.append))
    assert reply == Refused("its ledger has no room for this, or cannot be written")
    [line] = said
    assert line.startswith("clinic-a refuses: ") and "beyond privacy.ledger_limit" in line


# What leaves


def test_a_fault_of_the_program_says_where_and_nothing_else(session, worker, monkeypatch):
    monkeypatch.setattr(F2GNN, "train_together", lambda clients, parameters: 1 / 0)
    said = []
    reply = parse_reply(worker.reply(session.train(1).to_bytes(), said.append))
    assert isinstance(reply, Failed) and reply.where.startswith("ZeroDivisionError in test_run.py, line ")
    monkeypatch.undo()
    assert isinstance(asked(worker, session.train(1)), Upload)  # it was not answered, and the worker goes on


def test_text_of_an_exception_stays(session, worker, monkeypatch):
    def tell(clients, parameters):
        raise DataError("patient 17 has label 1")

    monkeypatch.setattr(F2GNN, "train_together", tell)
    data = worker.reply(session.train(1).to_bytes())
    assert b"patient" not in data and isinstance(parse_reply(data), Failed)


@pytest.mark.parametrize("data", [b"", b"\xc1", b"nonsense", bytes(100), b"\x80"])
def test_a_malformed_request_gets_one_line(worker, session, data):
    reply = parse_reply(worker.reply(data))
    assert isinstance(reply, Refused) and reply.reason.startswith("the request is ")
    assert isinstance(asked(worker, session.train(1)), Upload)


# Sums, totals, evaluation, personal models


def contribute(session, offer, **changed):
    fields = {"round": 1, "slot": 0, "cohort": 3, "model": b""}
    return Contribute(session.offer.to_bytes(), offer.to_bytes(), **{**fields, **changed})


def test_a_site_adds_to_the_sums_of_its_method_once_each(hospitals, tmp_path):
    session = Session(hospitals, settings("method={name: privfairfl, local_epochs: 1}"))
    worker = hospitals.worker(tmp_path)
    [described] = session.config.method.statistics()
    offer = sum_offer(session, described)
    request = contribute(session, offer).to_bytes()
    first = worker.reply(request)
    assert isinstance(parse_reply(first), Upload) and worker.reply(request) == first
    assert asked(worker, contribute(session, offer, slot=1)) == Refused(
        "round 1 was answered already; a round has one upload"
    )
    again = hospitals.worker(tmp_path)
    assert isinstance(parse_reply(again.reply(request)), Refused)


def test_a_sum_that_the_run_has_not_is_refused(hospitals, tmp_path):
    session = Session(hospitals, settings("method={name: privfairfl, local_epochs: 1}"))
    worker = hospitals.worker(tmp_path)
    [described] = session.config.method.statistics()
    lie = replace(session.plan, min_cohort=1)
    for offer, text in (
        (sum_offer(session, replace(described, name="ages")), "the run has no sum 'ages'"),
        (sum_offer(session, described, plan=lie), "is another run's, or on other terms"),
        (sum_offer(session, described, length=5), "the sum 'cells' has 5 numbers, expected 4"),
        (sum_offer(session, described, run="cd" * 16), "is another run's"),
        (session.offer, "the run has no sum ''"),
    ):
        reply = asked(worker, contribute(session, offer))
        assert isinstance(reply, Refused) and text in reply.reason, reply
    lone = asked(worker, contribute(session, sum_offer(session, described), cohort=1))
    assert isinstance(lone, Refused) and "fewer than the plan's min_cohort = 3" in lone.reason
    reply = asked(worker, Begin(sum_offer(session, described).to_bytes()))
    assert isinstance(reply, Refused) and "is given as that of a run's rounds" in reply.reason


def test_totals_outlive_the_worker(hospitals, tmp_path):
    session = Session(hospitals, settings("method={name: privfairfl, local_epochs: 1}"))
    worker = hospitals.worker(tmp_path)
    total = np.array([10.0, 20.0, 30.0, 5.0])
    for name, numbers, text in (
        ("ages", total, "no sum of the name"),
        ("cells", total[:3], "of 24 bytes, expected 32"),
        ("cells", np.array([np.nan, 1, 1, 1]), "NaN"),
    ):
        reply = asked(worker, HearTotal(session.offer.to_bytes(), name, numbers.tobytes()))
        assert isinstance(reply, Refused) and text in reply.reason
    assert asked(worker, HearTotal(session.offer.to_bytes(), "cells", total.tobytes())) == Done()
    made = create(hospitals.graphs[0].scaled_to_train(), session.config, 0)
    made.hear_total("cells", total)
    delta = made.train(session.model).delta
    assert close(session, asked(hospitals.worker(tmp_path), session.train(1)), delta, 1)


def test_summed_counts_are_those_of_the_model_that_is_asked_about(hospitals, tmp_path):
    session = Session(hospitals, settings("evaluation={where: clients, tables: summed}"))
    worker, described = hospitals.worker(tmp_path), summed_tables(session.config)
    offer = sum_offer(session, described)
    short = asked(worker, contribute(session, offer, model=bytes(16)))
    assert isinstance(short, Refused) and "a model of 16 bytes" in short.reason
    reply = asked(worker, contribute(session, offer, model=session.model.tobytes()))
    plan = sum_plan(described, 3, session.plan)
    layout = counts_layout(session.config, Sizes(0, 5, 2, 2, 3))
    summed = Session(hospitals, session.config)
    summed.keypairs, summed.plan, summed.offer = session.keypairs, plan, offer
    summed.model = np.zeros(layout.length)
    update, _ = summed.update(reply, 1)
    made = create(hospitals.graphs[0].scaled_to_train(), session.config, 0)
    counts = layout.of(made.logits(session.model, False), made.graph)
    assert np.abs(update * -described.bound - counts).max() < 1e-3


def test_exact_counts_leave_only_where_the_owner_allows_it(hospitals, tmp_path):
    session = Session(hospitals, settings("evaluation={where: clients, tables: each}"))
    order = Evaluate(session.offer.to_bytes(), 1, session.model.tobytes(), False)
    assert isinstance(asked(hospitals.worker(tmp_path / "1"), order), Refused)
    reply = asked(hospitals.worker(tmp_path / "2", policy='{"exact_metrics": true}'), order)
    made = create(hospitals.graphs[0].scaled_to_train(), session.config, 0)
    said = made.evaluate(session.model, False)
    assert isinstance(reply, Evaluated) and reply.val == said["val"].ravel().tolist()
    assert reply.figures.keys() == said.keys() - {"val", "test"}
    quiet = Session(hospitals, settings())
    reply = asked(hospitals.worker(tmp_path / "3"), replace(order, offer=quiet.offer.to_bytes()))
    assert isinstance(reply, Refused) and "policy.exact_metrics is false" in reply.reason


def test_an_answer_that_nobody_waits_for_is_refused(session, worker):
    asked(worker, session.train(1))
    reply = asked(worker, Deliver(session.offer.to_bytes(), 1, 0, (b"a", b"b")))
    assert isinstance(reply, Refused) and "no answer of round 1 that it waits for" in reply.reason


def test_damaged_memory_is_said_and_not_guessed(session, worker, hospitals, tmp_path):
    asked(worker, session.train(1))
    progress = tmp_path / "clinic-a" / "state" / "runs" / RUN / "progress.json"
    kept = json.loads(progress.read_text())
    assert kept["states"] == [1]
    progress.write_text("{")
    assert isinstance(asked(hospitals.worker(tmp_path), session.train(2)), Failed)
