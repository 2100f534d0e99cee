"""The list of openings is that of the source, and what parties see follows from the settings."""

from __future__ import annotations

import ast
from collections import Counter
from pathlib import Path

import pytest

import orchestrator
from orchestrator.page.openings import OPENINGS, openings, parties

OPENERS = {"open_scalars", "open_bits", "open_ring64", "release"}
PACKAGES = (Path(orchestrator.__file__).parent, Path(orchestrator.__file__).parents[1] / "mpc_programs")


def reasons_in_the_source() -> list[str]:
    found = []
    for package in PACKAGES:
        for file in package.rglob("*.py"):
            for call in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
                if isinstance(call, ast.Call) and getattr(call.func, "id", None) in OPENERS:
                    [reason] = [word.value for word in call.keywords if word.arg == "reason"]
                    assert isinstance(reason, ast.Constant), f"{file}: an opening without a reason in plain text"
                    found.append(reason.value)
    return found


def test_every_opening_of_the_program_is_in_the_list_once():
    reasons = reasons_in_the_source()
    assert Counter(opening.reason for opening in OPENINGS) == Counter(set(reasons)) and len(reasons) >= 10


@pytest.mark.parametrize(
    ("overrides", "there", "not_there"),
    [
        ((), "each client's own random elements", "witnesses"),
        (("engine.program=scalar-first",), "fresh scaled vectors", "own random elements"),
        (("federation.clients=untrusted", "privacy.clip_norm=1"), "which updates are too long", "clip bound follows"),
        (("privacy={clip_norm: 1, clip: quantile}",), "clip bound follows", "too long"),
        (("method.name=fedpub", "model.name=gcn-classifier", "evaluation.where=clients"), "own model", "noisy model"),
    ],
)
def test_settings_say_what_may_be_opened(tiny, tmp_path, overrides, there, not_there):
    reasons = [own.reason for own in openings(tiny(tmp_path, "engine.name=embedded", *overrides))]
    assert any(there in reason for reason in reasons) and not any(not_there in reason for reason in reasons)


def test_who_sees_what(tiny, tmp_path):
    def seen(*overrides: str) -> dict[str, str]:
        return {party.name: party.sees for party in parties(tiny(tmp_path, *overrides))}

    shared = seen("engine.name=embedded")
    assert "every upload" in shared["both servers together"] and "sealed uploads" in shared["the coordinator"]
    assert shared["whoever evaluates"] == "the whole graph" and "the dealer" not in shared
    assert "the dealer" in seen("engine={name: embedded, preprocessing: dealer}")
    plain = seen("engine.name=plaintext", "evaluation.where=clients")
    assert "in the clear" in plain["the coordinator"] and "one server" not in plain and "whoever evaluates" not in plain
    assert "each client's counts" in seen("engine.name=embedded", "evaluation.where=clients")["the coordinator"]
    assert openings(tiny(tmp_path, "engine.name=plaintext")) == []
