"""What one aggregation costs, on made-up uploads: no data set, no training.

Beside every figure stands its floor, measured in the same run: the round's exchanges between two processes that do
nothing else, plus the servers' vector arithmetic alone.
"""

from __future__ import annotations

import multiprocessing
import tempfile
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median
from typing import Any, Literal

import numpy as np
from threadpoolctl import threadpool_limits

from mpc_programs.rules import RoundParameters
from orchestrator.engines.embedded.channel import Position, accept, connect, listen
from orchestrator.engines.embedded.engine import EmbeddedEngine
from orchestrator.engines.embedded.tls import Identity, create_certificates
from orchestrator.engines.plaintext import PlainUpload, float64_aggregate
from orchestrator.sharing.fixed_point import VectorFormat

__all__ = ["Record", "bench_embedded", "exchange_sec", "median_sec", "vector_sec"]

CLIP_NORM = 8.0


@dataclass(frozen=True)
class Record:
    """Medians over the repeats; bytes are what each server sends.

    Memory is the largest resident set of a server over its life; 0 where the system does not tell (it is Linux's).
    """

    engine: str
    program: str
    preprocessing: str
    cohort: int
    parameters: int
    online_seconds: float
    online_bytes_per_server: int
    rounds: int
    preprocessing_seconds: float
    preprocessing_bytes_per_server: int
    upload_bytes_per_client: int
    startup_seconds: float
    floor_seconds: float
    max_error: float
    memory_bytes_per_server: int

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)


def bench_embedded(
    cohort: int,
    parameters: int,
    repeats: int,
    program: Literal["assisted", "scalar-first", "faithful"] = "assisted",
    preprocessing: Literal["ot", "dealer"] = "ot",
    observe: Callable[[int], None] = lambda repeat: None,
    commands: dict[str, list[str]] | None = None,
) -> Record:
    """Start the embedded engine and aggregate `repeats` times with F2GNN's rule and clipping, after one warm-up round.

    Args:
        cohort, parameters: q and d.
        program: what is done with the vectors; see `orchestrator.engines.embedded.program.aggregate`.
        preprocessing: as in `engine.preprocessing`.
        observe: called after each repeat.
        commands: as in `EmbeddedEngine`.
    """
    threadpool_limits(1)  # idle worker threads of this process would spin on the servers' cores
    rng = np.random.default_rng(0)
    vectors = VectorFormat(update_bits=25, weight_bits=32, integer_bits=6)
    rule = RoundParameters("f2gnn", cohort, lam=8.0, ratio_max=vectors.limit / CLIP_NORM)
    uploads = [_upload(rng, parameters) for _ in range(cohort)]
    costs, errors = [], []
    with EmbeddedEngine(
        rule,
        vectors,
        clip_norm=CLIP_NORM,
        program=program,
        preprocessing=preprocessing,
        timeout_sec=600.0,
        commands=commands,
    ) as engine:
        started = time.perf_counter()
        model = rng.normal(size=parameters)
        engine.start(model)
        startup = time.perf_counter() - started
        for number in range(1, repeats + 2):
            engine.prepare(number, cohort)
            for slot, upload in enumerate(uploads):
                sealed = engine.encoder(upload.delta, upload.norm, upload.scores, number, slot, slot)
                engine.submit(number, slot, slot, sealed)
            result = engine.aggregate(number, range(cohort))
            expected = float64_aggregate(model, rule, CLIP_NORM, uploads)
            errors.append(float(np.abs(result.parameters - expected).max()))
            model = result.parameters
            if number > 1:
                costs.append(result.cost)
                observe(number - 1)
        memory = max(_peak_memory_bytes(pid) for pid in engine.pids.values())
    rounds = costs[0].rounds
    return Record(
        engine="embedded",
        program=program,
        preprocessing=preprocessing,
        cohort=cohort,
        parameters=parameters,
        online_seconds=median(cost.online_seconds for cost in costs),
        online_bytes_per_server=int(median(max(cost.online_bytes) for cost in costs)),
        rounds=rounds,
        preprocessing_seconds=median(cost.preprocessing_seconds for cost in costs),
        preprocessing_bytes_per_server=int(median(max(cost.preprocessing_bytes) for cost in costs)),
        upload_bytes_per_client=int(median(cost.upload_bytes for cost in costs)),
        startup_seconds=startup,
        floor_seconds=rounds * exchange_sec() + vector_sec(cohort, parameters),
        max_error=max(errors),
        memory_bytes_per_server=memory,
    )


def _upload(rng: np.random.Generator, parameters: int) -> PlainUpload:
    delta = rng.normal(size=parameters)
    delta *= 2.0 ** rng.uniform(-4, 5) / np.linalg.norm(delta)  # some are clipped, some are not
    return PlainUpload(delta, float(np.linalg.norm(delta)), {"balance": rng.random(), "fairness": 2 * rng.random()})


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


def vector_sec(cohort: int, parameters: int) -> float:
    """The arithmetic on vectors that a server cannot avoid: two multiply-adds a client in Z_2^64."""
    vector, total = np.arange(parameters, dtype=np.uint64), np.zeros(parameters, dtype=np.uint64)
    product = np.empty_like(vector)

    def arithmetic() -> None:
        for _ in range(2 * cohort):
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
