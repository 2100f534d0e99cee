"""Every error a user can meet, as one small tree.

A message is one line that names the file, setting, peer or line at fault and what would be right.
The command line prints it and exits with ``exit_status``; nothing here is ever printed and ignored.
"""

from __future__ import annotations

__all__ = [
    "BusyError",
    "CohortError",
    "ConfigError",
    "ConsentError",
    "DataError",
    "DisagreementError",
    "PeerLostError",
    "PeerTimeoutError",
    "ProtocolError",
    "RangeError",
    "RunError",
    "SafeGNNError",
]


class SafeGNNError(Exception):
    """Base of all errors that end a command with one clear line."""

    exit_status = 1


class ConfigError(SafeGNNError):
    """A setting is unknown, malformed, or contradicts another one."""

    exit_status = 2


class ConsentError(SafeGNNError):
    """A participant takes no part in what it is asked for; the line is for both ends."""


class DataError(SafeGNNError):
    """A data file is missing or does not hold what its format promises."""


class RangeError(SafeGNNError):
    """A value lies outside what the fixed-point encoding can represent; raised before anything is shared."""


class RunError(SafeGNNError):
    """A run folder or checkpoint cannot be written, read or resumed."""


class BusyError(SafeGNNError):
    """Another process is writing to a folder that only one may write."""


class ProtocolError(SafeGNNError):
    """A round ended because a peer failed.

    Attributes:
        peer: who is at fault, e.g. ``"server 1"``, ``"dealer"``, ``"client 7"``.
        phase: what was being done, e.g. ``"online"``.
        round: the global round, counted from 1; 0 before the first round.
        reason: what was observed.
    """

    def __init__(self, peer: str, phase: str, round: int, reason: str) -> None:
        super().__init__(f"round {round}, phase {phase}: {peer}: {reason}")
        self.peer, self.phase, self.round, self.reason = peer, phase, round, reason

    def __reduce__(self) -> tuple[type, tuple[str, str, int, str]]:
        return type(self), (self.peer, self.phase, self.round, self.reason)


class PeerTimeoutError(ProtocolError):
    """The peer is alive as far as the network tells, but did not answer within the timeout."""


class PeerLostError(ProtocolError):
    """The connection closed or the peer's process ended."""


class CohortError(ProtocolError):
    """Fewer clients of a cohort can take part than the settings ask for; nothing of the round was computed."""


class DisagreementError(ProtocolError):
    """The peer answered, but with another program, parameters, round or cohort, or with a malformed message."""
