"""Rounds under a personal rule on real servers: every client gets its own model, and nobody else does."""

import pickle
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from mpc_programs.rules import RoundParameters
from orchestrator.agreement.round_plan import Terms
from orchestrator.coordinator.audit import float64_personal
from orchestrator.coordinator.embedded import EmbeddedEngine
from orchestrator.errors import (
    ConfigError,
    DisagreementError,
    PeerLostError,
)
from orchestrator.methods.base import LocalUpdate
from orchestrator.mpc.fixed_point import VectorFormat
from orchestrator.wire.envelope import Keypair
from orchestrator.wire.message import Place
from tests.support import engine_of

FORMAT = VectorFormat(25, 32, 6)
FAULTY = str(Path(__file__).with_name("faulty.py"))
MODEL = np.linspace(-1, 1, 30)


def faulty(role, phase, number, signal="SIGKILL", *marker):
    return {role: [sys.executable, FAULTY, role, phase, str(number), signal, *map(str, marker)]}


PERSONAL = RoundParameters("fedpub", 3, embedding=4)


def personal_engine(**options):
    return engine_of(EmbeddedEngine, PERSONAL, FORMAT, timeout_sec=20.0, **options)


def personal_uploads(seed, size=3):
    rng = np.random.default_rng(seed)
    embeddings = rng.normal(size=(size, 4))
    embeddings /= np.linalg.norm(embeddings, axis=1, keepdims=True)
    return [LocalUpdate(rng.normal(size=len(MODEL)), 1.0, {"embedding": embedding}) for embedding in embeddings]


def play_personal(running, number, size=3, keypairs=None):
    """One whole round; the aggregation and what every client makes of its answer."""
    keypairs = keypairs or [Keypair() for _ in range(size)]
    for slot, upload in enumerate(personal_uploads(number, size)):
        place = (number, slot, 10 + slot)
        key = keypairs[slot].public_key
        running.submit(*place, running.encoder(upload, Place(*place), key))
    result = running.aggregate(number, range(10, 10 + size))
    decoder = pickle.loads(pickle.dumps(running.decoder))
    answers = result.answers.items()
    return result, [decoder(answer, keypairs[slot], Place(number, slot, 10 + slot)) for slot, answer in answers]


def check_personal(models, number, size=3):
    _, expected = float64_personal(MODEL, PERSONAL, personal_uploads(number, size))
    error = replace(PERSONAL, cohort=size).similarities.error_ulp * 2.0**-32
    assert np.abs(np.array(models) - expected).max() <= FORMAT.error_bound(size, 4.0, factors=error)


@pytest.mark.parametrize("preprocessing", ["ot", "dealer"])
def test_every_client_gets_its_own_model_in_rounds_of_any_size(preprocessing):
    with personal_engine(preprocessing=preprocessing) as running:
        running.start(MODEL)
        for number, size in enumerate((3, 0, 5, 1, 2, 3), 1):
            running.prepare(number, size)
            result, models = play_personal(running, number, size)
            assert result.parameters is None and result.weights is None and len(result.answers) == size
            if not size:
                assert result.cost.download_bytes == result.cost.preprocessing_bytes[0] == 0
                continue
            check_personal(models, number, size)
            d, cost = len(MODEL), result.cost
            assert 8 * (size + 2) * d < cost.upload_bytes < 8 * (size + 2) * d + 1000
            assert 16 * d < cost.download_bytes < 16 * d + 400
            assert cost.online_bytes[0] == cost.online_bytes[1] < 16_000


def test_a_personal_round_that_nobody_prepared_is_one_of_the_usual_size():
    with personal_engine() as running:
        running.start(MODEL)
        check_personal(play_personal(running, 1)[1], 1)
        check_personal(play_personal(running, 2)[1], 2)


def test_an_answer_is_for_its_client_and_round_alone():
    with personal_engine() as running:
        running.start(MODEL)
        keypairs = [Keypair() for _ in range(3)]
        answers = [play_personal(running, number, keypairs=keypairs)[0].answers for number in (1, 2)]
        decoder = running.decoder
        for slot in range(3):
            others = [keypairs[k] for k in range(3) if k != slot] + [Keypair()]
            for keypair in others:
                with pytest.raises(DisagreementError, match=r"server 0: .* sealed to another key"):
                    decoder(answers[0][slot], keypair, Place(1, slot, 10 + slot))
        with pytest.raises(DisagreementError, match="another round 1 instead of 2"):
            decoder(answers[0][1], keypairs[1], Place(2, 1, 11))
        running.start(MODEL)
        with pytest.raises(DisagreementError, match="another run"):
            running.decoder(answers[1][1], keypairs[1], Place(2, 1, 11))


@pytest.mark.parametrize("role", ["server 0", "server 1"])
@pytest.mark.parametrize(
    ("phase", "number"), [("upload", 1), ("preprocessing", 1), ("settlement", 2), ("online", 2), ("release", 2)]
)
def test_a_server_killed_in_a_personal_round_ends_it_and_the_engine_starts_again(tmp_path, role, phase, number):
    commands = faulty(role, phase, number, "SIGKILL", tmp_path / "marker")
    with personal_engine(commands=commands) as struck:
        struck.start(MODEL)
        with pytest.raises(PeerLostError) as caught:
            for current in (1, 2):
                struck.prepare(current, 3)
                play_personal(struck, current)
        assert (caught.value.peer, caught.value.round) == (role, number)
        struck.start(MODEL)
        check_personal(play_personal(struck, number)[1], number)


def test_what_a_personal_rule_is_not_computed_with_is_refused():
    with pytest.raises(ConfigError, match=r"^engine\.program = faithful: fedpub"):
        personal_engine(program="faithful")
    with pytest.raises(ConfigError, match="without clipping or noise"):
        personal_engine(clip_norm=1.0)
    with personal_engine() as running, pytest.raises(ConfigError, match="without clipping or noise"):
        running.prepare(1, 3, Terms(1.0))
