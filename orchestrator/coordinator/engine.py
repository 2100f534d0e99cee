"""The one interface of every engine: take a cohort's uploads, give the new models and what they cost.

Common rules release one model to everyone. Under a personal rule every client of the cohort gets its own, which nobody
else sees: the engine hands out what the coordinator carries to each client, whose process decodes it.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from orchestrator.agreement.round_plan import RoundPlan, Terms
from orchestrator.client.interface import Decoder, Encoder
from orchestrator.errors import CohortError

__all__ = ["Aggregation", "Engine", "RoundCost", "too_few"]


@dataclass(frozen=True)
class RoundCost:
    """What one aggregation cost. Seconds are the slower server's; bytes are counted at the sockets, per server.

    Attributes:
        online_seconds: from the servers' agreement on the round to both noisy shares being ready.
        online_bytes: sent to the other server in that time, (server 0, server 1).
        rounds: exchanges between the servers in that time.
        preprocessing_seconds, preprocessing_bytes: making this round's correlations, wherever in time that was; bytes
            that each server sent to the other one, or received from the dealer.
        waited_seconds: how long the round stood still until both servers had its preprocessing and had agreed on it,
            and for noise that was not drawn yet.
        upload_bytes: what one client of the cohort sent, mean over the cohort.
        download_bytes: what one client received, its model; mean over the cohort.
        startup_seconds: how long the round stood still for processes that it had to start.
    """

    online_seconds: float = 0.0
    online_bytes: tuple[int, int] = (0, 0)
    rounds: int = 0
    preprocessing_seconds: float = 0.0
    preprocessing_bytes: tuple[int, int] = (0, 0)
    waited_seconds: float = 0.0
    upload_bytes: int = 0
    download_bytes: int = 0
    startup_seconds: float = 0.0

    def __add__(self, other: RoundCost) -> RoundCost:
        """Of both, one after the other."""
        sent, made = self.online_bytes, self.preprocessing_bytes
        return RoundCost(
            self.online_seconds + other.online_seconds,
            (sent[0] + other.online_bytes[0], sent[1] + other.online_bytes[1]),
            self.rounds + other.rounds,
            self.preprocessing_seconds + other.preprocessing_seconds,
            (made[0] + other.preprocessing_bytes[0], made[1] + other.preprocessing_bytes[1]),
            self.waited_seconds + other.waited_seconds,
            self.upload_bytes + other.upload_bytes,
            self.download_bytes + other.download_bytes,
            self.startup_seconds + other.startup_seconds,
        )


@dataclass(frozen=True)
class Aggregation:
    """What a round releases, and its cost.

    Attributes:
        parameters: the model, float64 (d,); None under a personal rule, which does not move the public model.
        cost: of the round.
        within: how many updates had a norm of at most C, with noise; None where they were not counted.
        answers: under a personal rule, by slot, what the coordinator carries to the client; for `Engine.decoder`.
        weights: alpha, float64 (q, q), of a personal rule on the plaintext engine; no other one knows them. In the
            order of the slots that were not left out.
        left_out: by slot, why a client's upload was not used.
    """

    parameters: np.ndarray | None
    cost: RoundCost
    within: float | None = None
    answers: Mapping[int, Any] | None = field(default=None, repr=False)
    weights: np.ndarray | None = field(default=None, repr=False)
    left_out: Mapping[int, str] = field(default_factory=dict)


def too_few(round: int, cohort: Sequence[int], left_out: Mapping[int, str], least: int) -> CohortError:
    """The error of a round in which fewer clients than `least` can take part, who names those that were left out."""
    numbers = [cohort[slot] for slot in sorted(left_out)]
    who = f"client{'s' if len(numbers) > 1 else ''} {', '.join(map(str, numbers[:4]))}{', ...' if numbers[4:] else ''}"
    reason = left_out[min(left_out)] if left_out else f"{len(cohort)} were asked"
    remain = (
        f"{len(cohort) - len(left_out)} of {len(cohort)} clients remain, fewer than federation.min_cohort = {least}"
    )
    return CohortError(who if numbers else "cohort", "upload", round, f"{reason}; {remain}")


class Engine(ABC):
    """An engine holds the global model between rounds; use it as a context manager, so that nothing is left running.

    Attributes:
        plan: what it was made from. Training on another plan is refused: its noise would not be the one accounted for.
    """

    plan: RoundPlan

    @abstractmethod
    def start(self, parameters: np.ndarray) -> None:
        """Begin with a public model, float64 (d,): a fresh one or that of a checkpoint. Also after a failed round.

        Under a personal rule every client's update is the difference to this model, in all rounds.
        """

    @property
    @abstractmethod
    def encoder(self) -> Encoder:
        """What clients encode with in the round that was prepared last; valid after `start`."""

    @property
    @abstractmethod
    def decoder(self) -> Decoder:
        """What clients decode their answers with under a personal rule; valid after `start`."""

    @abstractmethod
    def prepare(self, round: int, size: int, terms: Terms | None = None) -> None:
        """Begin whatever of the round can be done before the uploads exist; returns at once.

        Args:
            size: how many clients the round's cohort has; with Poisson sampling it varies, and may be none.
            terms: None for those that the engine was made with.

        Raises:
            ConfigError: the engine cannot do a round of that size or on those terms.
        """

    @abstractmethod
    def submit(self, round: int, slot: int, client: int, upload: Any) -> None:
        """Take one client's upload, as its encoder made it, while other clients may still be training.

        Whatever is wrong with it costs that client its part: `Aggregation.left_out` says so.
        """

    @abstractmethod
    def aggregate(self, round: int, cohort: Sequence[int]) -> Aggregation:
        """Aggregate what was submitted for the slots of the cohort, which `prepare` was told the size of.

        Weights are computed over those whose uploads came and are whole; who is left out has no part in the result. A
        cohort may be empty: what is released then is the model as it was, with noise as in any other round, and under
        a personal rule nothing. A round that was not prepared is one on the terms that the engine was made with.

        Raises:
            CohortError: fewer clients can take part than the engine was told to ask for. Nothing was released, and the
                next round can be one of another cohort.
            ProtocolError: naming peer, phase and round; the engine must then be closed, or started again with the
                last model that was released.
            RangeError: the model left the representable range.
        """

    @abstractmethod
    def close(self) -> None:
        """Stop everything; safe to call twice."""

    def __enter__(self) -> Engine:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
