"""What the promise of a run does not cover, from its settings; docs/privacy.md has the reasons."""

from __future__ import annotations

from orchestrator.agreement.round_plan import HIDING_COHORT
from orchestrator.page.record import Record
from orchestrator.registry import METHODS

__all__ = ["assumptions", "not_covered"]


def assumptions(record: Record) -> list[str]:
    """Under which what is said of a run holds."""
    config, said = record.config, []
    if config.engine.name in ("embedded", "mpspdz"):
        said.append("The two servers do not collude, and no client colludes with a server or is operated by one.")
        said.append("All parties follow the protocol (semi-honest).")
        if config.federation.clients == "trusted":
            said.append(
                "Clients clip, score and encode as the program does: nobody checks (federation.clients = trusted)."
            )
        else:
            said.append(
                "Clients may lie: servers check length and ranges of every upload (federation.clients = untrusted)."
            )
        said.append("AES, HPKE and oblivious transfer are secure: the protection of shares is computational.")
    if record.private and config.federation.sampling != "cyclic":
        said.append(
            "Nobody outside knows who took part. The key that cohorts follow from lies in the run folder's checkpoint, "
            "which is kept to its owner."
        )
    if record.private:
        said.append("Whether an honest client answers does not depend on its data.")
    return said


def not_covered(record: Record) -> list[str]:
    """A sentence for everything, most important first."""
    config, said = record.config, list[str]()
    plaintext = config.engine.name == "plaintext"
    if plaintext:
        of = "; what is said is of a run on shares with its settings" if record.private else ""
        said.append(f"This run was in plaintext and protected nobody{of}.")
    elif config.engine.name == "masking":
        said.append("Masking was simulated; its one server learns every exact sum.")
    if not record.private:
        said.append("Nothing limits what the released models say of a client: there is no noise, and no epsilon.")
        if config.privacy.clip_norm is not None:
            said.append("Clipping alone (privacy.clip_norm) protects nothing.")
        if not plaintext:
            said.append(f"Who took part follows from the published seed, {config.seed}, and stands in the records.")
        least = record.hiding()
        if config.federation.cohort < HIDING_COHORT or (least is not None and 0 < least < HIDING_COHORT):
            said.append(
                f"Rounds may have fewer than {HIDING_COHORT} clients: each member can learn much of the others."
            )
        elif config.federation.cohort <= 10:
            said.append(f"A sum over {config.federation.cohort} clients hides each of them badly.")
    elif record.privacy is None:
        said.append(f"No epsilon is stated in spite of the noise: {record.no_epsilon or 'no round was completed'}.")
    if record.private:
        where, exact = config.evaluation.where, config.evaluation.exact_beside_noise
        if record.privacy is not None and record.privacy["metrics"] == "exact":
            said.append(f"Metrics are exact ({where}): epsilon does not cover them, only the released models.")
        if exact and config.data.scaling == "pooled":
            said.append(
                "Features were scaled over all clients' data (data.scaling = pooled), which epsilon does not cover."
            )
        said.append("Settings that were chosen by looking at results on the same data are not accounted.")
        if config.privacy.ledger is None:
            said.append("Other runs on the same data add to this one: no ledger counts them (privacy.ledger).")
        said.append("Whoever holds the run folder's checkpoint knows every cohort; its records name clients left out.")
        if config.federation.clients == "trusted":
            said.append("A client that lies about its update is not stopped, and can spoil the model.")
    if METHODS[config.method.name].unaccounted:
        said.append(f"Of {config.method.name}: {METHODS[config.method.name].unaccounted}.")
    rule = METHODS[config.method.name].rule
    if config.engine.program == "assisted" and config.engine.name == "embedded" and rule not in (None, "fedavg"):
        said.append("A client can work out its own exact weight in a round, which depends on everybody's scores.")
    said.append("The unit is a client with all its data: somebody who is a node at several clients is protected less.")
    if config.evaluation.where == "whole_graph":
        said.append("Whoever evaluates holds the whole graph: evaluation is outside the threat model.")
    elif config.evaluation.where == "clients" and config.evaluation.tables == "each":
        said.append(
            "The coordinator sees each client's counts by group, label and prediction (evaluation.tables = each)."
        )
    said.append("Sizes and times of messages are seen by whoever sees the network, and show how many take part.")
    if config.engine.name == "embedded":
        said.append(
            "Where one machine runs all processes it only simulates that the servers are apart: its operator could "
            "read both halves."
        )
    return said
