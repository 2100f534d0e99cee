"""Who takes part in a round, and with which seeds.

Without noise both follow from the run's seed, so that anybody can repeat the run. With noise epsilon counts on nobody
outside knowing who took part, and seeds are published: cohorts follow from a key that the operating system draws
(`fresh_seed`), by AES in counter mode, and clients get seeds that tell neither the key nor the run's seed. The key
stays with the coordinator, in the checkpoint, so that a round which is repeated has the same cohort and the same
training: it asks the same sample for the same sum, as its charge assumes.
"""

from __future__ import annotations

import hmac
from functools import lru_cache
from pathlib import Path

import numpy as np

from orchestrator.config import Config, FederationConfig
from orchestrator.errors import RunError
from orchestrator.files import write_atomically
from orchestrator.mpc.prg import SEED_BYTES, Prg, fresh_seed
from orchestrator.seeding import seeded_generator

__all__ = ["clients_config", "fingerprint", "kept_key", "sample_cohort"]


def sample_cohort(config: FederationConfig, clients: int, seed: int | bytes, round: int) -> list[int]:
    """The cohort of a round, before anything is uploaded (Algorithm 1, line 9).

    Whoever knows the seed, or the key, knows every cohort: sampling hides nobody from them. Of cyclic cohorts epsilon
    does not count on it: every client's turns are at least floor(clients / cohort) rounds apart.

    Args:
        seed: the run's seed; or the 16 bytes of a key, for cohorts that nobody can tell who lacks it. Poisson's rate is
            then met within 2^-64, and fixed-size cohorts are exactly uniform.
    """
    if config.sampling == "cyclic":
        first, order = (round - 1) * config.cohort, _order(clients, seed)
        return [order[(first + slot) % clients] for slot in range(config.cohort)]
    if isinstance(seed, bytes):
        return _secret_cohort(config, clients, Prg(_derived(seed, f"cohort/{round}")[:SEED_BYTES]))
    generator = seeded_generator(seed, "cohort", round)
    if config.sampling == "poisson":
        return [int(client) for client in np.flatnonzero(generator.random(clients) < config.cohort / clients)]
    chosen = generator.choice(clients, size=config.cohort, replace=config.sampling == "with_replacement")
    return [int(client) for client in chosen]


def kept_key(path: Path, new: bool) -> bytes:
    """The key of a run with noise, from its file, of mode 0600; drawn where there is none and the run is new.

    Raises:
        RunError: the key of a run that began is missing or damaged.
    """
    if new and not path.exists():
        write_atomically(path, lambda file: file.write(fresh_seed()))
    try:
        key = path.read_bytes()
    except OSError as error:
        reason = "nobody else knows who took part in the rounds"
        raise RunError(f"{path}: cannot be read: {error.strerror or error}; {reason}") from None
    if len(key) != SEED_BYTES:
        raise RunError(f"{path}: is damaged: expected {SEED_BYTES} bytes, found {len(key)}")
    return key


def clients_config(config: Config, seed: int | bytes) -> Config:
    """What clients are told of the settings: of a run with a key another seed, from which nothing else follows."""
    if not isinstance(seed, bytes):
        return config
    return config.model_copy(update={"seed": int.from_bytes(_derived(seed, "clients")[:8], "little") >> 1})


def fingerprint(seed: int | bytes, plan: str) -> str:
    """A run's cohorts and plan in one word, which tells nothing of the key. Args: plan: `RoundPlan.lasting`."""
    key = seed if isinstance(seed, bytes) else str(seed).encode()
    return _derived(key, f"run/{plan}").hex()


def _secret_cohort(config: FederationConfig, clients: int, stream: Prg) -> list[int]:
    if config.sampling == "poisson":
        threshold = (config.cohort << 64) // clients
        return [c for c, word in enumerate(stream.uint64(clients).tolist()) if word < threshold]
    if config.sampling == "with_replacement":
        return [word % clients for word in stream.uint64(config.cohort).tolist()]
    return _permutation(clients, stream)[: config.cohort]


@lru_cache(maxsize=4)
def _order(clients: int, seed: int | bytes) -> list[int]:
    """In which clients take turns; it is fixed for a run, and need not be a secret."""
    key = seed if isinstance(seed, bytes) else str(seed).encode()
    return _permutation(clients, Prg(_derived(key, "cycle")[:SEED_BYTES]))


def _permutation(clients: int, stream: Prg) -> list[int]:
    """All clients, in an order that is as likely as any other."""
    words = stream.uint64(clients)
    while len(np.unique(words)) < clients:
        words = stream.uint64(clients)
    return [int(client) for client in np.argsort(words)]


def _derived(key: bytes, purpose: str) -> bytes:
    return hmac.digest(key, purpose.encode(), "sha256")
