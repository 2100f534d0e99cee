"""Every `safegnn` command in the pages is one that the command line takes: options, presets, settings, arms."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest
import typer
from click import Command, Context, Group
from click.exceptions import BadOptionUsage, MissingParameter, UsageError

from orchestrator.cli import compare
from orchestrator.cli.app import app
from orchestrator.cli.options import load
from orchestrator.config import preset_names
from orchestrator.errors import ConfigError, SafeGNNError
from orchestrator.experiments.fairness_settings import chosen_arms
from orchestrator.experiments.privacy_settings import EXPERIMENTS, settings_of

ROOT = Path(__file__).parent.parent
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("**/*.md"))]
STANDS_FOR = {
    "PRESET": "fedpub-cora-disjoint-10",
    "NAME": "german",
    "SIGMA": "1",
    "T": "5",
    "DELTA": "1e-5",
    "method.similarity=T": "method.similarity=5",
}
"""Words of the pages that a reader replaces; folders and files are named by any word."""

# A line of a block, or a quotation within a text, which may go on in its next line.
COMMAND = re.compile(r"^(?P<line>safegnn .*)$|`(?P<quoted>safegnn [^`]*)`", re.MULTILINE)


def commands(page: Path) -> list[tuple[str, bool]]:
    """The commands of a page as a shell would take them, and whether each stands alone, hence complete."""
    text = page.read_text(encoding="utf-8").replace("\\\n", "")
    return [(" ".join(found[0].strip("`").split()), bool(found["line"])) for found in COMMAND.finditer(text)]


EVERY = sorted({(page.name, *command) for page in PAGES for command in commands(page)})


def parsed(words: list[str]) -> Context:
    """What the command line makes of it, short of doing it."""
    command: Command = typer.main.get_command(app)
    while isinstance(command, Group) and words:
        name = words.pop(0)
        found = command.get_command(Context(command), name)
        if found is None:
            raise UsageError(f"no command {name}")
        command = found
    return command.make_context(command.name, words)


def understood(command: str, complete: bool) -> None:
    """Raises UsageError or SafeGNNError where it is not; without the files that a reader is to bring."""
    words = [STANDS_FOR.get(word, word).replace(",...", "") for word in shlex.split(command, comments=True)[1:]]
    if "--help" in words:
        words.remove("--help")
        complete = False
    try:
        context = parsed(words)
    except (MissingParameter, BadOptionUsage):  # of a bare name or option
        if complete:
            raise
        return
    given = context.params | ({"config": None} if "config" in context.params else {})
    if "resume" in given and given.pop("resume") is not None:
        return  # the settings are the run's
    given.pop("as_json", None)
    if context.command.name == "compare":
        compare._plan(**given)
    elif context.command.name == "reproduce":
        if given["experiment"] not in EXPERIMENTS:
            raise ConfigError(f"no experiment {given['experiment']}")
        presets = given["preset"] or list(EXPERIMENTS[given["experiment"]].presets)
        settings = load(presets, None, given["set_"], given["data_dir"], given["engine"])
        if given["experiment"] == "fairness":  # the others calibrate noise, which takes long
            arms = settings_of("fairness", settings)
            chosen_arms(arms, [name.strip() for name in given["arms"].split(",")] if given["arms"] else list(arms))
    elif context.command.name in ("train", "bench"):
        named = {key: given.get(key) for key in ("data_dir", "protocol")}
        load(given["preset"], None, given["set_"], engine=given["engine"], **named)
    elif context.command.name == "info" and given.get("preset"):
        assert given["preset"] in preset_names()


@pytest.mark.parametrize(("page", "command", "complete"), EVERY, ids=[f"{page}: {text}" for page, text, _ in EVERY])
def test_a_command_in_a_page_is_one_that_there_is(page, command, complete):
    understood(command, complete)


def test_most_pages_have_commands():
    assert len(EVERY) > 60 and {page for page, *_ in EVERY} >= {"README.md", "f2gnn.md", "fairness.md", "privacy.md"}


@pytest.mark.parametrize(
    "command",
    [
        "safegnn trian --preset german",
        "safegnn train --presets german",
        "safegnn train --preset germany",
        "safegnn train --preset german --set method.alfa=1",
        "safegnn train --preset german --set federation.cohort=0",
        "safegnn train --preset german --engine mask",
        "safegnn compare --methods fedavg,nobody",
        "safegnn reproduce fairness --preset german --arms nobody",
        "safegnn reproduce everything",
        "safegnn account --sampler fixed --clients many",
    ],
)
def test_one_that_is_not_is_noticed(command):
    with pytest.raises((UsageError, SafeGNNError)):
        understood(command, complete=True)
