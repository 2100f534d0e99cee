"""What one aggregation costs, on made-up uploads: no data set, no training.

Beside every figure stands its floor, measured in the same run: the round's exchanges between two processes that do
nothing else, plus the servers' vector arithmetic alone.
"""

from __future__ import annotations

import multiprocessing
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
from threadpoolctl import threadpool_limits

from mpc_programs.programs import PROGRAMS
from mpc_programs.rules import RULES, Range, RoundParameters
from orchestrator.agreement.from_settings import plan_of
from orchestrator.config import Config
from orchestrator.coordinator.audit import float64_aggregate, float64_personal
from orchestrator.coordinator.factory import create_engine
from orchestrator.coordinator.masked_sum import threshold
from orchestrator.coordinator.two_servers import TwoServerEngine
from orchestrator.errors import ConfigError
from orchestrator.experiments.memory import check_round
from orchestrator.methods.base import LocalUpdate
from orchestrator.registry import METHODS
from orchestrator.transport.channel import Position, listen
from orchestrator.transport.door import accept, connect
from orchestrator.transport.tls import Identity, create_certificates
from orchestrator.wire.envelope import Keypair
from orchestrator.wire.message import Place

__all__ = [
    "Contender",
    "Record",
    "bench",
    "bench_all",
    "bench_embedded",
    "contenders",
    "exchange_sec",
    "median_sec",
    "vector_sec",
    "with_cohort",
]

CLIP_NORM = 8.0
"""Where the settings clip nothing; the clip is part of the round that the paper measured."""

LONGEST_SEC = 30.0
"""After this long no more rounds are repeated."""

DROPOUTS = "as many drop out as may"
"""What the masking engine does besides a round in which everybody stays; each must then be unmasked."""


@dataclass(frozen=True)
class Contender:
    """One way to compute a round; the protocol is None where an engine has only one."""

    engine: str
    program: str
    preprocessing: str
    protocol: str | None = None

    def applied_to(self, config: Config) -> Config:
        """The settings under which a round is computed this way, without noise, in no haste.

        With clipping, except for personal rules, which have none.
        """
        if self.engine == "masking":
            kept = threshold(config.federation.cohort)
            return config.changed(
                engine={"name": "masking"},
                federation={"min_cohort": min(kept, config.federation.cohort)},
                privacy={"clip_norm": None, "noise_multiplier": 0.0},
            )
        chosen = {"name": self.engine, "program": self.program, "timeout_sec": 600.0}
        own = {"protocol": self.protocol} if self.protocol else {"preprocessing": self.preprocessing}
        clip_norm = None if METHODS[config.method.name].personal else CLIP_NORM
        privacy = {"clip_norm": config.privacy.clip_norm or clip_norm, "noise_multiplier": 0.0}
        return config.changed(engine={**chosen, **own}, privacy=privacy)

    def __str__(self) -> str:
        return ", ".join(filter(None, (self.engine, self.protocol, self.program, self.preprocessing)))


@dataclass(frozen=True)
class Record:
    """Medians over the repeats; bytes are what each server sends.

    Rounds are simultaneous exchanges; of mpspdz they are what it counts, sending and receiving apart, so about twice as
    many. Start-up is the engine's, once, and of mpspdz that of one round's parties. Memory is the largest resident set
    of a server over its life, without MP-SPDZ's parties; 0 where the system does not tell (it is Linux's).
    """

    engine: str
    protocol: str | None
    program: str
    preprocessing: str
    cohort: int
    parameters: int
    repeats: int
    online_seconds: float
    online_bytes_per_server: int
    rounds: int
    preprocessing_seconds: float
    preprocessing_bytes_per_server: int
    upload_bytes_per_client: int
    download_bytes_per_client: int
    startup_seconds: float
    floor_seconds: float
    max_error: float
    memory_bytes_per_server: int

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)

    @property
    def startup_seconds_per_round(self) -> float:
        return self.startup_seconds if self.engine == "mpspdz" else 0.0


def contenders(
    engine: str = "all", programs: Sequence[str] = tuple(PROGRAMS), preprocessing: Sequence[str] = ("ot", "dealer")
) -> list[Contender]:
    """What could be measured.

    Args:
        engine: "embedded", "mpspdz", "masking" or "all", which are the first two.
        programs: which.
        preprocessing: which; on mpspdz "ot" means semi2k and "dealer" means dealer-ring.
    """
    found: list[Contender] = []
    if engine == "masking":
        return [Contender("masking", "nobody drops out", ""), Contender("masking", DROPOUTS, "")]
    if engine != "mpspdz":
        found += [Contender("embedded", program, how) for program in programs for how in preprocessing]
    if engine != "embedded":
        protocols = {"ot": "semi2k", "dealer": "dealer-ring"}
        found += [Contender("mpspdz", program, how, protocols[how]) for program in programs for how in preprocessing]
    return found


def bench_embedded(
    cohort: int,
    parameters: int,
    repeats: int,
    program: str = "assisted",
    preprocessing: str = "ot",
    commands: dict[str, list[str]] | None = None,
) -> Record:
    """The embedded engine with F2GNN's rule and the defaults of all other settings."""
    contender = Contender("embedded", program, preprocessing)
    return bench(with_cohort(Config(), cohort), contender, parameters, repeats, commands)


def with_cohort(config: Config, cohort: int) -> Config:
    """The settings with so many clients in a round, and at least as many clients."""
    return config.changed(clients={"count": max(cohort, config.clients.count)}, federation={"cohort": cohort})


def bench_all(
    config: Config,
    contenders: Sequence[Contender],
    parameters: int,
    repeats: int,
    required: Sequence[str],
    announce: Callable[[str], None] = lambda text: None,
) -> list[Record]:
    """Measure one contender after the other.

    Args:
        config, parameters, repeats: as in `bench`.
        required: engines without which there is no result; contenders of others that cannot run here are left out.
        announce: called with what is measured next, and why one is left out.

    Raises:
        ConfigError: a contender of a required engine cannot run here.
    """
    records = []
    for contender in contenders:
        announce(f"{contender}: {repeats} rounds")
        try:
            records.append(bench(config, contender, parameters, repeats))
        except ConfigError as error:
            if contender.engine in required:
                raise
            announce(f"{contender}: left out: {error}")
    return records


def bench(
    config: Config,
    contender: Contender,
    parameters: int,
    repeats: int,
    commands: dict[str, list[str]] | None = None,
) -> Record:
    """Start the engine and aggregate up to `repeats` times, after one warm-up round.

    Args:
        config: cohort, rule, clipping, formats, and where an installation of MP-SPDZ is.
        contender: what to measure.
        parameters: d.
        commands: as in `TwoServerEngine`.

    Raises:
        ConfigError: the engine lacks what it needs, the program cannot compute what is configured, or the method
            aggregates nothing.
    """
    threadpool_limits(1)  # idle worker threads of this process would spin on the servers' cores
    config = contender.applied_to(config)
    clip_norm = config.privacy.clip_norm
    rule = plan_of(config).rule
    present = threshold(rule.cohort) if contender.program == DROPOUTS else rule.cohort
    check_round(rule.cohort * rule.models, parameters)
    rng = np.random.default_rng(0)
    costs, errors = [], []
    with create_engine(config, commands) as engine:
        uploads = [_upload(rng, rule, parameters) for _ in range(rule.cohort)]
        keypairs = [Keypair() for _ in uploads]
        started = time.perf_counter()
        model = rng.normal(size=parameters)
        engine.start(model)
        startup, begun = time.perf_counter() - started, 0.0
        for number in range(1, repeats + 2):
            engine.prepare(number, len(uploads))
            for slot, upload in enumerate(uploads[:present]):
                sealed = engine.encoder(upload, Place(number, slot, slot), keypairs[slot].public_key)
                engine.submit(number, slot, slot, sealed)
            result = engine.aggregate(number, range(rule.cohort))
            if rule.personal:
                assert result.answers is not None
                _, expected = float64_personal(model, rule, uploads)
                own = [(result.answers[slot], keypairs[slot], Place(number, slot, slot)) for slot in range(rule.cohort)]
                released = np.stack([engine.decoder(*each) for each in own])
            else:
                assert result.parameters is not None
                expected = float64_aggregate(model, rule, clip_norm, uploads[:present])
                model = released = result.parameters
            errors.append(float(np.abs(released - expected).max()))
            if number == 1:
                begun = time.perf_counter()
                continue
            costs.append(result.cost)
            if time.perf_counter() - begun > LONGEST_SEC:
                break
        pids = engine.pids.values() if isinstance(engine, TwoServerEngine) else ()
        memory = max((_peak_memory_bytes(pid) for pid in pids), default=0)
    rounds, on_mpspdz = costs[0].rounds, contender.engine == "mpspdz"
    exchanges = rounds // 2 if on_mpspdz else rounds
    return Record(
        engine=contender.engine,
        protocol=contender.protocol,
        program=contender.program,
        preprocessing=contender.preprocessing,
        cohort=rule.cohort,
        parameters=parameters,
        repeats=len(costs),
        online_seconds=median(cost.online_seconds for cost in costs),
        online_bytes_per_server=int(median(max(cost.online_bytes) for cost in costs)),
        rounds=rounds,
        preprocessing_seconds=median(cost.preprocessing_seconds for cost in costs),
        preprocessing_bytes_per_server=int(median(max(cost.preprocessing_bytes) for cost in costs)),
        upload_bytes_per_client=int(median(cost.upload_bytes for cost in costs)),
        download_bytes_per_client=int(median(cost.download_bytes for cost in costs)),
        startup_seconds=median(cost.startup_seconds for cost in costs) if on_mpspdz else startup,
        floor_seconds=exchanges * exchange_sec() + vector_sec(rule.cohort * rule.models, parameters),
        max_error=max(errors),
        memory_bytes_per_server=memory,
    )


def _upload(rng: np.random.Generator, rule: RoundParameters, parameters: int) -> LocalUpdate:
    """An update that is clipped or not, and scores anywhere in their ranges."""
    delta = rng.normal(size=parameters)
    delta *= 2.0 ** rng.uniform(-4, 5) / np.linalg.norm(delta)
    scores = {name: _score(rng, limits) for name, limits in RULES[rule.rule].ranges(rule).items()}
    return LocalUpdate(delta, float(np.linalg.norm(delta)), scores)


def _score(rng: np.random.Generator, limits: Range) -> float | np.ndarray:
    if limits.size == 1:
        return rng.uniform(limits.low, limits.high)
    direction = rng.normal(size=limits.size)
    return limits.high * direction / np.linalg.norm(direction)


def _peak_memory_bytes(pid: int) -> int:
    """Of a running process. Its own `getrusage` would count what the process that forked it held."""
    status = Path(f"/proc/{pid}/status")
    if not status.exists():
        return 0
    fields = dict(line.split(":", 1) for line in status.read_text().splitlines())
    return 1024 * int(fields["VmHWM"].removesuffix("kB"))


def median_sec(work: Callable[[], object], repeats: int = 20) -> float:
    """Median seconds of a call."""
    samples = []
    for _ in range(repeats):
        started = time.perf_counter()
        work()
        samples.append(time.perf_counter() - started)
    return median(samples)


def vector_sec(products: int, parameters: int) -> float:
    """The arithmetic on vectors that a server cannot avoid: two multiply-adds in Z_2^64 for each factor."""
    vector, total = np.arange(parameters, dtype=np.uint64), np.zeros(parameters, dtype=np.uint64)
    product = np.empty_like(vector)

    def arithmetic() -> None:
        for _ in range(2 * products):
            np.multiply(vector, np.uint64(12345), out=product)
            np.add(total, product, out=total)

    return median_sec(arithmetic, 5)


def exchange_sec(count: int = 2000) -> float:
    """One simultaneous exchange of 64 bytes over TLS between two processes that do nothing else."""
    with tempfile.TemporaryDirectory() as parent:
        folder = Path(parent) / "certificates"
        create_certificates(folder, days=1)
        listener = listen("127.0.0.1", 0)
        context = multiprocessing.get_context("spawn")
        other = context.Process(target=_answer, args=(listener.getsockname(), folder, count))
        other.start()
        identity = Identity.load(folder, "server 1")
        channel = accept(listener, {"server 0"}, identity, b"bench", Position(), 60.0)["server 0"]
    channel.exchange(bytes(64))
    started = time.perf_counter()
    for _ in range(count):
        channel.exchange(bytes(64))
    seconds = (time.perf_counter() - started) / count
    other.join()
    channel.close()
    listener.close()
    return seconds


def _answer(address: tuple[str, int], folder: Path, count: int) -> None:
    identity = Identity.load(folder, "server 0")
    channel = connect(address, identity, b"bench", "server 1", Position(), 60.0)
    for _ in range(count + 1):
        channel.exchange(bytes(64))
    channel.close()
