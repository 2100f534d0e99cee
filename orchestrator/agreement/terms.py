"""What a run is, in bytes that all parties can sign and judge, and both aggregators' word that these are its keys.

Parties: two aggregators that offer keys for a run on its terms; sites, that seal to the keys; a coordinator, that
carries offers and may lie. What each learns: all of it is public. Channel: any; what counts in an offer is signed.

An aggregator makes an HPKE key for every session, and signs it together with the terms on which it will use it. A site
that seals to a signed key therefore knows who opens, and what will be done with it. Who has no settings, such as an
aggregator, judges the plan alone; who has, such as a site, makes the plan anew from the settings and compares.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from functools import cached_property
from typing import Any, NoReturn

from orchestrator.agreement.identity import OwnKey, verify
from orchestrator.agreement.roster import Roster
from orchestrator.agreement.round_plan import RoundPlan
from orchestrator.config import Config
from orchestrator.errors import ConsentError
from orchestrator.wire.records import LARGEST, record

__all__ = ["SECTIONS", "Offer", "RunTerms", "sign_offer"]

SECTIONS = ("clients", "evaluation", "federation", "method", "model", "privacy", "sharing")
"""The settings by which sites train. Of the others a site has its own, or the plan says what it must know."""

_OWN = ("ledger", "ledger_limit")
"""Of `privacy`, each site's own business."""

_PURPOSE = b"safegnn offer 1"
_LONGEST = 1 << 20
_DIGEST, _RUN = re.compile(r"[0-9a-f]{64}"), re.compile(r"[0-9a-f]{16,64}")
_KEY, _SIGNATURE, _NUMBER = 32, 64, 16
_PART = _KEY + _SIGNATURE


@dataclass(frozen=True)
class RunTerms:
    """What the parties of a run agree on.

    Attributes:
        consortium: digest of the roster.
        run: what tells the run from others, hexadecimal; the same when it is resumed.
        plan: of the run's rounds, also where the terms are those of a sum.
        rounds: how many there are.
        length: d, the numbers of a client's update.
        settings: `SECTIONS` of the run's settings, plain values.
        sum: name of the secure sum whose rounds these are; empty: they are the run's own.
        seed: from which clients derive theirs where the run has no noise; None: every client has one of its own.
    """

    consortium: str
    run: str
    plan: RoundPlan
    rounds: int
    length: int
    settings: Mapping[str, Any] = field(repr=False)
    sum: str = ""
    seed: int | None = None

    @classmethod
    def of(cls, config: Config, consortium: str, run: str, plan: RoundPlan, length: int, **others: Any) -> RunTerms:
        """Of a run's settings. Args: others: `sum` and `seed`."""
        tree = config.model_dump(mode="json")
        settings = {name: tree[name] for name in SECTIONS}
        for own in _OWN:
            del settings["privacy"][own]
        return cls(consortium, run, plan, config.federation.rounds, length, settings, **others)

    def to_bytes(self) -> bytes:
        """The one way to write them."""
        return json.dumps(asdict(self), sort_keys=True, separators=(",", ":"), allow_nan=False).encode()

    @cached_property
    def digest(self) -> str:
        """SHA-256, hexadecimal."""
        return hashlib.sha256(self.to_bytes()).hexdigest()

    @classmethod
    def from_bytes(cls, data: bytes) -> RunTerms:
        """What `to_bytes` wrote. Raises ValueError, naming the field at fault; whether they fit is not looked at."""
        if len(data) > _LONGEST:
            raise ValueError(f"the terms have {len(data)} bytes, expected at most {_LONGEST}")
        try:
            tree = json.loads(data.decode(), parse_constant=_refuse_constant)
        except (ValueError, RecursionError):
            raise ValueError("the terms are no JSON, or none that is read here") from None
        expected = cls.__dataclass_fields__.keys()
        if not isinstance(tree, dict) or tree.keys() != expected:
            raise ValueError(f"the terms have other fields than {', '.join(expected)}")
        try:
            plan = record(RoundPlan, tree["plan"], "plan")
        except ValueError as error:
            raise ValueError(f"the terms have the field {error}") from None
        fits = {
            "consortium": _matches(_DIGEST, tree["consortium"]),
            "run": _matches(_RUN, tree["run"]),
            "rounds": _counts(tree["rounds"], 1, LARGEST),
            "length": _counts(tree["length"], 1, LARGEST),
            "settings": _sections(tree["settings"]),
            "sum": isinstance(tree["sum"], str) and len(tree["sum"]) <= 200,
            "seed": tree["seed"] is None or _counts(tree["seed"], 0, 2**63),
        }
        if wrong := [name for name, fit in fits.items() if not fit]:
            raise ValueError(f"the terms have a field '{wrong[0]}' of another type or range")
        terms = cls(**{**tree, "plan": plan})
        try:
            same = terms.to_bytes() == data
        except (ValueError, RecursionError):  # a number that only Python reads
            same = False
        if not same:
            raise ValueError("the terms are not written in their one way")
        return terms


@dataclass(frozen=True)
class Offer:
    """A session of both aggregators: their keys, for a run on its terms.

    Attributes:
        run: the session's number, 16 bytes.
        terms: as `RunTerms.to_bytes` wrote them.
        keys: HPKE public keys of server 0 and server 1, 32 bytes each.
        signatures: theirs, 64 bytes each, by their identities.
    """

    run: bytes
    terms: bytes = field(repr=False)
    keys: tuple[bytes, bytes]
    signatures: tuple[bytes, bytes] = field(repr=False)

    def to_bytes(self) -> bytes:
        """Number, key and signature of each server, terms; one after the other."""
        parts = (key + signature for key, signature in zip(self.keys, self.signatures, strict=True))
        return b"".join([self.run, *parts, self.terms])

    @classmethod
    def from_bytes(cls, data: bytes) -> Offer:
        """What `to_bytes` wrote. Raises ValueError where it is too short or too long to be that."""
        start = _NUMBER + 2 * _PART
        if not start < len(data) <= start + _LONGEST:
            raise ValueError(f"the offer has {len(data)} bytes, expected {start + 1} to {start + _LONGEST}")
        first, second = (data[at : at + _PART] for at in (_NUMBER, _NUMBER + _PART))
        return cls(
            data[:_NUMBER], data[start:], (first[:_KEY], second[:_KEY]), (first[_KEY:], second[_KEY:])
        )  # fmt: skip

    @cached_property
    def session(self) -> str:
        """SHA-256 of what is signed, hexadecimal: no other session has the same."""
        return hashlib.sha256(b"".join(_signed(self.terms, self.run, k, self.keys[k]) for k in (0, 1))).hexdigest()

    def check(self, roster: Roster) -> RunTerms:
        """The terms.

        Raises:
            ConsentError: an aggregator of the roster did not sign this, or the terms are malformed or another
                consortium's.
        """
        for server, aggregator in enumerate(roster.aggregators):
            message = _signed(self.terms, self.run, server, self.keys[server])
            if not verify(aggregator.certificate, _PURPOSE, message, self.signatures[server]):
                raise ConsentError(f"the offer is not signed by aggregator {aggregator.name} (server {server})")
        try:
            terms = RunTerms.from_bytes(self.terms)
        except ValueError as error:
            raise ConsentError(str(error)) from None
        if terms.consortium != roster.digest:
            raise ConsentError(
                f"the run is of the roster {terms.consortium[:16]}..., and this one is {roster.digest[:16]}...; "
                "compare `safegnn consortium check`"
            )
        return terms


def sign_offer(own: OwnKey, server: int, run: bytes, terms: bytes, key: bytes) -> bytes:
    """An aggregator's signature for an offer. Args: as in `Offer`; server: 0 or 1; key: its own."""
    return own.sign(_PURPOSE, _signed(terms, run, server, key))


def _signed(terms: bytes, run: bytes, server: int, key: bytes) -> bytes:
    return hashlib.sha256(terms).digest() + run + bytes([server]) + key


def _matches(pattern: re.Pattern[str], value: Any) -> bool:
    return isinstance(value, str) and pattern.fullmatch(value) is not None


def _counts(value: Any, low: int, high: int) -> bool:
    return type(value) is int and low <= value < high


def _sections(tree: Any) -> bool:
    if not isinstance(tree, dict) or tree.keys() != {*SECTIONS}:
        return False
    sections = all(isinstance(section, dict) for section in tree.values())
    return sections and not any(own in tree["privacy"] for own in _OWN)


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(name)
