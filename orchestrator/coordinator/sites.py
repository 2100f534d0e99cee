"""The clients' side of the round loop where clients are sites of their own: what `ClientPool` offers, over a transport.

Parties: the coordinator and the sites of a roster; client k is the k-th. What is heard of a site is checked before it
is used (`orchestrator.site.messages`). A site that is lost, silent, refuses or says what is none costs its own part of
the round: by slot, `missing` says why. States stay with the sites, in their own folders.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from orchestrator.agreement.deployment import refuse_undeployable
from orchestrator.agreement.roster import Roster
from orchestrator.client.interface import Decoder, Encoder
from orchestrator.client.sealing import SealingEncoder
from orchestrator.client.summands import Statistic, Summand, TablesOf
from orchestrator.config import Config
from orchestrator.coordinator.simulated_clients import Trained
from orchestrator.coordinator.site_transport import SiteTransport
from orchestrator.errors import (
    ConfigError,
    ConsentError,
    DisagreementError,
    PeerLostError,
    ProtocolError,
    SafeGNNError,
)
from orchestrator.evaluation.summed import MASKS
from orchestrator.secure_sum import Sizes
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
    Hello,
    Message,
    Refused,
    Train,
    Upload,
    Welcome,
    parse_reply,
)

__all__ = ["RemoteSites"]


class RemoteSites:
    """All sites of a roster. A context manager.

    `begin` comes before anything that concerns a run: whatever sites are asked afterwards they are shown its offer.
    """

    def __init__(
        self, roster: Roster, transport: SiteTransport, config: Config, *, timeout_sec: float | None = None
    ) -> None:
        """
        Args:
            config: of the run.
            timeout_sec: for a site's training; None: `engine.training_timeout_sec`.

        Raises:
            ConfigError: the settings ask for what cannot be done with sites.
        """
        refuse_undeployable(config)
        self._roster, self._transport, self._config = roster, transport, config
        self._timeout_sec = config.engine.training_timeout_sec if timeout_sec is None else timeout_sec
        self._short_sec = config.engine.startup_timeout_sec
        """For what takes no training."""
        self._offer = b""
        self._totals: dict[str, bytes] = {}
        self._behind: dict[int, set[str]] = {k: set() for k in range(len(roster.sites))}
        """By client, the sums that it has not heard."""
        self._sizes: Sizes | None = None

    def hello(self) -> tuple[Sizes, dict[int, SafeGNNError]]:
        """What everybody knows of the data, and, by client, why some did not say.

        Raises:
            ConfigError: two sites' data do not fit each other.
            PeerLostError: nobody is there.
        """
        said: dict[int, Welcome] = {}
        missing: dict[int, SafeGNNError] = {}
        for k, reply in self._asked(dict.fromkeys(self._everybody, Hello()), self._short_sec, "hello", 0):
            if isinstance(reply, Welcome):
                said[k] = reply
            else:
                missing[k] = _error(self._name(k), "hello", 0, reply)
        for k, own in sorted(said.items()):
            first = said[min(said)]
            if own.name != self._name(k) or own.consortium != self._roster.digest:
                raise ConfigError(
                    f"site {self._name(k)}: it is {own.name} of the roster {own.consortium[:16]}..., and this one is "
                    f"{self._roster.digest[:16]}...; compare `safegnn consortium check`"
                )
            for what in ("features", "classes", "groups", "columns"):
                if getattr(own, what) != getattr(first, what):
                    raise ConfigError(
                        f"site {own.name}: its {what} are {getattr(own, what)}, and those of site {first.name} "
                        f"{getattr(first, what)}; expected the same columns in the same order"
                    )
        if not said:
            raise PeerLostError("sites", "hello", 0, f"none of {len(missing)} is there") from missing[0]
        self._sizes = Sizes(0, first.features, first.classes, first.groups, len(self._roster.sites))
        return self._sizes, missing

    def begin(self, encoder: Encoder) -> dict[int, SafeGNNError]:
        """Show all sites the offer of a run's engine, which has started; returns by client who takes no part, and why.

        To be called again where the engine is started again.
        """
        self._offer = _offer(encoder)
        refused = {}
        for k, reply in self._asked(dict.fromkeys(self._everybody, Begin(self._offer)), self._short_sec, "consent", 0):
            if not isinstance(reply, Done):
                refused[k] = _error(self._name(k), "consent", 0, reply)
        return dict(sorted(refused.items()))

    def restore(self, states: Mapping[int, Path]) -> None:
        """Nothing: every site has its own state."""

    def save(self, round: int, clients: Iterable[int], folder: Path) -> dict[int, Path]:
        """Nothing: every site has its own state."""
        return {}

    def train(
        self,
        round: int,
        cohort: Sequence[int],
        parameters: np.ndarray,
        encoder: Encoder,
        deliver: Callable[[int, int, Any], None],
        audit: Encoder | None = None,
        keyed: bool = False,
    ) -> Trained:
        """As `ClientPool.train`. Sites that keep account of rounds without them are told, and not waited for.

        Raises:
            ConfigError: `audit` is asked for, which is for simulations.
        """
        if audit is not None:
            raise ConfigError("--audit: sites show no plaintext; it is for simulations")
        started, clip_norm = time.perf_counter(), _sealing(encoder).clip_norm
        self._offer = _offer(encoder)
        model = _bytes(parameters)
        orders: dict[int, Message] = {
            client: Train(self._offer, round, slot, len(cohort), clip_norm, model) for slot, client in enumerate(cohort)
        }
        others = [k for k in self._everybody if k not in orders] if self._config.privacy.noise_multiplier else []
        told = dict.fromkeys(others, Announce(self._offer, round))
        missing = self._uploads(round, "local training", cohort, orders, deliver, told)
        return Trained({}, missing, time.perf_counter() - started)

    def contribute(
        self,
        round: int,
        clients: Sequence[int],
        summand: Summand,
        bound: float,
        length: int,
        encoder: Encoder,
        deliver: Callable[[int, int, Any], None],
    ) -> dict[int, SafeGNNError]:
        """As `ClientPool.contribute`; what is summed, and its bound and length, stand in the sum's own terms.

        Raises:
            ConfigError: the summand is one that sites do not give.
        """
        if not isinstance(summand, Statistic | TablesOf):
            raise ConfigError(f"the sum '{summand.name}': sites do not prepare together")
        model = _bytes(summand.parameters) if isinstance(summand, TablesOf) else b""
        offer, size = _offer(encoder), len(clients)
        orders: dict[int, Message] = {
            client: Contribute(self._offer, offer, round, slot, size, model) for slot, client in enumerate(clients)
        }
        return self._uploads(round, "secure sum", clients, orders, deliver, {})

    def hear_total(self, name: str, total: np.ndarray) -> None:
        """Tell every site what a secure sum came to; who does not hear it now is told before it trains again."""
        self._totals[name] = _bytes(total)
        for missed in self._behind.values():
            missed.add(name)
        self._catch_up(self._everybody)

    def deliver(
        self, round: int, cohort: Sequence[int], answers: Mapping[int, Any], decoder: Decoder, reveal: bool = False
    ) -> dict[int, np.ndarray]:
        """As `ClientPool.deliver`, but that a site which cannot be reached keeps the model that it has.

        Raises:
            ConfigError: `reveal` is asked for, which is for simulations.
        """
        if reveal:
            raise ConfigError("--audit: sites show no plaintext; it is for simulations")
        orders: dict[int, Message] = {
            cohort[slot]: Deliver(self._offer, round, slot, answer) for slot, answer in answers.items()
        }
        for _ in self._asked(orders, self._short_sec, "delivery", round):
            pass
        return {}

    def evaluate(
        self, round: int, clients: Iterable[int], parameters: np.ndarray, own: bool
    ) -> dict[int, dict[str, Any]]:
        """As `ClientPool.evaluate`, of the sites that say it.

        Raises:
            SafeGNNError: none does; the first one's reason.
        """
        order, said = Evaluate(self._offer, round, _bytes(parameters), own), {}
        errors: dict[int, SafeGNNError] = {}
        for k, reply in self._asked(dict.fromkeys(clients, order), self._timeout_sec, "evaluation", round):
            if isinstance(reply, Evaluated) and (figures := self._figures(reply)) is not None:
                said[k] = figures
            else:
                errors[k] = _error(self._name(k), "evaluation", round, reply)
        if not said and errors:
            raise errors[min(errors)]
        return said

    def models(self, round: int, clients: Iterable[int], parameters: np.ndarray) -> dict[int, np.ndarray | None]:
        """None: a model that is a site's own stays there."""
        return dict.fromkeys(clients)

    def ask(self, step: int) -> dict[int, Mapping[str, np.ndarray]]:
        """Raises ConfigError: sites do not prepare together, as their questions would be seen."""
        raise ConfigError(f"method.name = {self._config.method.name}: sites do not prepare together")

    def hear(self, step: int, answers: Mapping[int, np.ndarray | None]) -> None:
        """As `ask`."""
        self.ask(step)

    def close(self) -> None:
        """Ask nobody any more; safe to call twice. Sites go on without."""
        self._transport.close()

    def __enter__(self) -> RemoteSites:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def _everybody(self) -> range:
        return range(len(self._roster.sites))

    def _name(self, client: int) -> str:
        return self._roster.site(client).name

    def _uploads(
        self,
        round: int,
        phase: str,
        cohort: Sequence[int],
        orders: Mapping[int, Message],
        deliver: Callable[[int, int, Any], None],
        told: Mapping[int, Message],
    ) -> dict[int, SafeGNNError]:
        """Deliver what sites upload; returns by slot why some do not.

        Args:
            told: what others are told, whose answers nobody waits for.
        """
        slots = {client: slot for slot, client in enumerate(cohort)}
        missing = {slots[k]: error for k, error in self._catch_up(cohort).items()}
        orders = {k: order for k, order in orders.items() if slots[k] not in missing}
        waiting = set(orders)
        for k, reply in self._asked({**orders, **told}, self._timeout_sec, phase, round) if waiting else ():
            if k not in waiting:
                continue
            waiting.remove(k)
            if isinstance(reply, Upload):
                deliver(slots[k], k, reply.envelopes)
            else:
                missing[slots[k]] = _error(self._name(k), phase, round, reply)
            if not waiting:
                break
        return dict(sorted(missing.items()))

    def _catch_up(self, clients: Iterable[int]) -> dict[int, SafeGNNError]:
        """Tell sites the sums that they have not heard; returns by client who did not hear one."""
        missing: dict[int, SafeGNNError] = {}
        for name, total in self._totals.items():
            order = HearTotal(self._offer, name, total)
            behind = dict.fromkeys((k for k in clients if name in self._behind[k] and k not in missing), order)
            for k, reply in self._asked(behind, self._short_sec, "secure sum", 0):
                if isinstance(reply, Done):
                    self._behind[k].discard(name)
                else:
                    missing[k] = _error(self._name(k), "secure sum", 0, reply)
        return missing

    def _figures(self, reply: Evaluated) -> dict[str, Any] | None:
        """What `LocalMethod.evaluate` says; None where it is none of this run's data."""
        sizes = self._sizes or self.hello()[0]
        shape = (sizes.groups, sizes.classes, sizes.classes)
        tables = {mask: np.array(getattr(reply, mask), dtype=np.int64) for mask in MASKS}
        areas = {f"{mask}_auc" for mask in MASKS}
        if any(table.size != np.prod(shape) for table in tables.values()) or not areas <= reply.figures.keys():
            return None
        figures = {name: np.nan if value is None else float(value) for name, value in reply.figures.items()}
        return {**{mask: table.reshape(shape) for mask, table in tables.items()}, **figures}

    def _asked(
        self, orders: Mapping[int, Message], timeout_sec: float, phase: str, round: int
    ) -> Iterator[tuple[int, Message | SafeGNNError]]:
        """What sites reply, or why they do not, as it comes."""
        numbers = {self._name(k): k for k in orders}
        requests = {name: orders[k].to_bytes() for name, k in numbers.items()}
        for name, said in self._transport.ask(requests, timeout_sec):
            if name not in numbers:
                continue
            if isinstance(said, ProtocolError):
                yield numbers[name], type(said)(said.peer, phase, round, said.reason)
                continue
            try:
                yield numbers[name], parse_reply(said)
            except ValueError as error:
                yield numbers[name], DisagreementError(f"site {name}", phase, round, str(error))


def _error(name: str, phase: str, round: int, reply: Message | SafeGNNError) -> SafeGNNError:
    """Why a site has no part, from what it said instead."""
    if isinstance(reply, SafeGNNError):
        return reply
    if isinstance(reply, Refused):
        return ConsentError(f"{name} refuses: {reply.reason}")
    if isinstance(reply, Failed):
        return PeerLostError(f"site {name}", phase, round, reply.where)
    return DisagreementError(f"site {name}", phase, round, f"replied '{reply.kind}' to what has another reply")


def _sealing(encoder: Encoder) -> SealingEncoder:
    """Raises ConfigError for the encoder of an engine whose uploads are not sealed, or whose keys nobody signed."""
    if not isinstance(encoder, SealingEncoder) or not encoder.offer:
        raise ConfigError("engine.name: sites seal to keys that aggregators of their roster signed, and to no others")
    return encoder


def _offer(encoder: Encoder) -> bytes:
    return _sealing(encoder).offer


def _bytes(numbers: np.ndarray) -> bytes:
    return np.asarray(numbers, dtype="<f8").tobytes()
