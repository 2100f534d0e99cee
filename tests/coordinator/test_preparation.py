"""What clients prepare together: questions to all, answers summed on shares, and who hears what."""

from __future__ import annotations

import numpy as np
import pytest

from orchestrator.agreement.from_settings import plan_of
from orchestrator.client.summands import as_update
from orchestrator.coordinator.factory import create_sum_engine
from orchestrator.coordinator.preparation import prepare_clients
from orchestrator.coordinator.run_folder import Checkpoint, RunFolder
from orchestrator.errors import PeerLostError
from orchestrator.secure_sum import Sizes
from orchestrator.wire.message import Place

M, FEATURES = 5, 3
GENERATOR = "encoder_hidden: 2, latent: 1, widths: [1, 2]"
LENGTH = (1 + 1) * 1 + (1 + 1) * 2 + (2 + 1) * FEATURES


class Client:
    """Answers asker a by a + 1, a + 1.01, ..., times the step's and its own number, from one, over 1000."""

    def __init__(self, number):
        self.number = number

    def answer(self, step, questions):
        parts = [
            np.zeros(LENGTH) if asker == self.number else question["about"] + 0.01 * np.arange(LENGTH)
            for asker, question in questions.items()
        ]
        return np.concatenate(parts) * (step + 1) * (self.number + 1) / 1000


class Pool:
    """Stands for the pool; client 2 fails in step 1."""

    def __init__(self):
        self.clients, self.uploads, self.heard = [Client(c) for c in range(M)], [], {}

    def ask(self, step):
        return {c: {"about": np.full(LENGTH, c + 1.0)} for c in range(M)}

    def contribute(self, round, clients, summand, bound, length, encoder, deliver):
        for slot, c in enumerate(clients):
            if (round, c) != (2, 2):
                upload = encoder(as_update(summand.of(self.clients[c]), bound, length), Place(round, slot, c))
                self.uploads.append(upload)
                deliver(slot, c, upload)
        return {2: PeerLostError("client 2", "secure sum", round, "it stumbled")} if round == 2 else {}

    def hear(self, step, answers):
        self.heard[step] = answers

    def save(self, round, clients, folder):
        return {}


def prepare(tiny, tmp_path, *overrides):
    config = tiny(tmp_path, "method.name=fedsage+", "model.name=sage", f"clients.count={M}", *overrides)
    pool, folder, said = Pool(), RunFolder.create(config), []
    sizes = Sizes(nodes=9, features=FEATURES, classes=2, groups=1, clients=M)
    plan, start = plan_of(config), Checkpoint(0, np.zeros(1), {})

    def engine(name, length, own):
        return create_sum_engine(own, config.engine)

    prepare_clients(config, plan, folder, pool, None, start, sizes, engine, said.append)
    return pool, folder.preparation(), said


@pytest.mark.parametrize("engine", ["plaintext", "embedded"])
def test_each_asker_hears_the_sum_of_the_others_answers_and_nobody_a_single_one(tiny, tmp_path, engine):
    exchange = f"method.generator={{{GENERATOR}, exchanges: 2, bound: 2}}"
    pool, facts, said = prepare(tiny, tmp_path, exchange, f"engine={{name: {engine}, preprocessing: dealer}}")
    for step, absent in ((0, set()), (1, {2})):
        assert list(pool.heard[step]) == list(range(M))
        for asker, answer in pool.heard[step].items():
            factors = [step + 1 for c in range(M) if c not in {asker} | absent for _ in range(c + 1)]
            expected = (asker + 1 + 0.01 * np.arange(LENGTH)) * sum(factors) / 1000
            np.testing.assert_allclose(answer, expected, atol=1e-7)
    assert said == [
        "clients prepare together: step 1 of 2",
        "clients prepare together: step 2 of 2; without client 2: secure sum: it stumbled",
    ]
    assert facts["steps"] == 2
    plain = 2 * 8 * LENGTH * (M * (M - 1) + M * M + M)  # questions, answers, sums
    if engine == "plaintext":
        assert facts["bytes"] == plain
    else:
        assert plain < facts["bytes"] < 40 * plain  # of so few numbers most is what seals them
        sealed = b"".join(half for upload in pool.uploads for half in upload)
        answers = [c.answer(0, pool.ask(0)) for c in pool.clients]
        assert not any(answer[k : k + 1].tobytes() in sealed for answer in answers for k in np.flatnonzero(answer))


def test_where_nothing_is_asked_nothing_is_added_up(tiny, tmp_path):
    pool, facts, _ = prepare(tiny, tmp_path, f"method.generator={{{GENERATOR}, exchanges: 0}}")
    assert pool.heard == {0: dict.fromkeys(range(M))} and not pool.uploads
    assert facts["steps"] == 1 and facts["bytes"] == 0
