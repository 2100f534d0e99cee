"""What becomes known in a run: every kind of opening with its reason, and what each party sees.

Servers do not count their openings: this is the list of all that the program has, which a test compares with the
source.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from mpc_programs.rules import RULES
from orchestrator.config import Config
from orchestrator.registry import METHODS

__all__ = ["OPENINGS", "Opening", "Party", "openings", "parties"]


class Opening(NamedTuple):
    """One kind.

    Attributes:
        reason: as the source gives it.
        shows: what whoever sees it learns.
        can: whether it may occur with some settings.
    """

    reason: str
    seen_by: str
    shows: str
    can: Callable[[Config], bool]


_SERVERS = "both servers"
_NOTHING = "nothing: uniform, whatever is masked"


def _always(config: Config) -> bool:
    return True


def _checked(config: Config) -> bool:
    return config.federation.clients == "untrusted"


def _own_models(config: Config) -> bool:
    rule = METHODS[config.method.name].rule
    return rule is not None and RULES[rule].personal


OPENINGS = (
    Opening("factors masked by a fresh triple", _SERVERS, _NOTHING, _always),
    Opening("bits masked by a fresh bit triple", _SERVERS, _NOTHING, _always),
    Opening("bits masked by fresh random bits", _SERVERS, _NOTHING, _always),
    Opening(
        "factors masked by each client's own random elements",
        _SERVERS,
        "nothing to a server; a client knows its mask, hence would have its own exact factor",
        lambda config: config.engine.program == "assisted",
    ),
    Opening(
        "factors and updates masked by fresh scaled vectors",
        _SERVERS,
        _NOTHING,
        lambda config: config.engine.program != "assisted",
    ),
    Opening("witnesses masked by fresh scaled vectors", _SERVERS, _NOTHING, _checked),
    Opening(
        "which updates are too long decides who is left out, and is recorded",
        _SERVERS,
        "who of the cohort sent an update longer than the clip bound",
        _checked,
    ),
    Opening(
        "the noisy model is the round's public result",
        "everybody",
        "the new model, with both servers' noise where there is any, else rounded",
        lambda config: not _own_models(config),
    ),
    Opening(
        "a client's own model is its result of the round",
        "that client",
        "its own new model",
        _own_models,
    ),
    Opening(
        "the clip bound follows the noisy number of norms within it",
        "everybody",
        "how many updates were within the clip bound, with noise where there is any",
        lambda config: config.privacy.clip == "quantile",
    ),
)


def openings(config: Config) -> list[Opening]:
    """Those that a run with such settings can have; none where nothing is shared."""
    return [own for own in OPENINGS if own.can(config)] if config.engine.name == "embedded" else []


class Party(NamedTuple):
    """What one party sees, and what stands against its seeing more."""

    name: str
    sees: str
    protection: str


def parties(config: Config) -> list[Party]:
    """By the settings, in the order of who is nearest to the data."""
    engine, noise = config.engine.name, config.privacy.noise_multiplier > 0
    hidden = "noise of differential privacy" if noise else "only that others are in the same sum: no noise"
    if _own_models(config):
        released = "its own model of every round, and nobody else's"
    else:
        released = "its own data, and every released model, so every cohort's weighted sum"
    rows = [Party("a client", released, hidden)]
    if engine in ("embedded", "mpspdz"):
        rows.append(
            Party(
                "one server",
                "its shares of uploads, masked values, the cohort, who was left out, public settings, the first model",
                "additive secret sharing, computational" + ("; the other server's noise" if noise else ""),
            )
        )
        rows.append(Party("both servers together", "every upload", "excluded: they must not collude"))
        if engine == "mpspdz" and config.engine.protocol == "dealer-ring":
            rows.append(
                Party("the dealer", "which program runs, public parameters, the model's length, when", "no share")
            )
        if engine == "embedded" and config.engine.preprocessing == "dealer":
            rows.append(Party("the dealer", "how many correlations of each kind a round takes, and when", "no share"))
    elif engine == "masking":
        rows.append(
            Party("the server", "masked uploads, the sum of the cohort's updates, who dropped out", "pairwise masks")
        )
    sees = ["sealed uploads" if engine in ("embedded", "mpspdz") else "", "the cohorts, who was left out and why"]
    if not _own_models(config):
        sees.append("released models")
    own = config.evaluation
    if own.where == "clients" and own.tables == "each":
        sees.append("each client's counts by group, label and prediction")
    if own.where == "clients" and own.tables == "summed":
        sees.append("the sum of all clients' counts")
    against = "uploads: sealed to each server's key; the rest: nothing" if sees[0] else "nothing"
    if engine == "plaintext":
        sees, against = ["every update, score and model, in the clear"], "nothing: this engine protects nobody"
    rows.append(Party("the coordinator", ", ".join(filter(None, sees)), against))
    if own.where == "whole_graph":
        rows.append(Party("whoever evaluates", "the whole graph", "nothing: evaluation is outside the threat model"))
    if any(not statistic.each_round for statistic in config.method.statistics()) or own.tables == "summed":
        rows.append(
            Party("everybody", "sums over all clients, of statistics or counts", "secret sharing of the summands")
        )
    return rows
