"""Whatever is typed ends in a result or in one line, never in a traceback."""

from __future__ import annotations

import contextlib
import io
import sys

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from orchestrator import api, cli
from orchestrator.cli.app import app
from orchestrator.config import Config, preset_names

SECTIONS = sorted(Config.model_fields)


def names(section: str) -> list[str]:
    kind = Config.inner().get(section)
    return sorted(kind.model_fields) if kind else ["x"]


SETTINGS = st.sampled_from(SECTIONS).flatmap(lambda s: st.sampled_from(names(s)).map(lambda name: f"{s}.{name}"))
WORDS = st.text(st.characters(exclude_characters="\0"), max_size=12)
NUMBERS = st.sampled_from(
    ["0", "1", "-1", "1e300", "1e-300", "1e18", ".inf", ".nan", "010", "1:30", "10000000000", "9" * 400]
)
YAML = st.recursive(
    NUMBERS
    | WORDS
    | st.sampled_from(["~", "null", "yes", "*a", "&a", "!!int x", "~/x", "poisson", "fedsage", "mpspdz"]),
    lambda inner: (
        st.lists(inner, max_size=3).map(lambda parts: f"[{', '.join(parts)}]")
        | st.lists(st.tuples(st.sampled_from(["name", "count", "a", "1"]), inner), max_size=3).map(
            lambda parts: "{" + ", ".join(f"{key}: {value}" for key, value in parts) + "}"
        )
    ),
    max_leaves=6,
)
OVERRIDES = st.tuples(SETTINGS | st.sampled_from(SECTIONS) | WORDS, YAML).map("=".join) | WORDS
LINES = st.tuples(st.sampled_from(SECTIONS) | WORDS, YAML).map(": ".join)


class Began(Exception):
    """Training would begin."""


@pytest.fixture
def run(monkeypatch, tmp_path):
    """``run(*arguments)``: the exit status, 0 also where training would begin; checks what is said."""
    monkeypatch.chdir(tmp_path)

    def begin(**_):
        raise Began

    monkeypatch.setattr(api, "train", begin)

    def run(*arguments):
        out, err = io.StringIO(), io.StringIO()
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err), monkeypatch.context() as patch:
            patch.setattr(sys, "argv", ["safegnn", *arguments])
            with pytest.raises(SystemExit) as caught:
                cli.main()
        said = err.getvalue()
        if "a fault of the program: Began" in said:
            return 0
        assert "fault of the program" not in said and "Traceback" not in said + out.getvalue(), said
        if caught.value.code and not (said == "" and "Usage" in out.getvalue()):  # a bare command prints its help
            assert said.startswith("safegnn: ") and said.count("\n") == 1 and len(said) < 5000, said
        return caught.value.code

    return run


modest = settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])


@given(st.lists(OVERRIDES, max_size=3))
@modest
def test_random_settings(run, given):
    assert run("train", *(argument for setting in given for argument in ("--set", setting))) in (0, 2)


@given(st.lists(LINES, max_size=4).map("\n".join).map(str.encode) | st.binary(max_size=40))
@modest
def test_random_files(run, tmp_path, content):
    (tmp_path / "settings.yaml").write_bytes(content)
    assert run("train", "--config", "settings.yaml") in (0, 2)


OPTIONS = st.sampled_from(
    [
        "--set",
        "--preset",
        "--config",
        "--engine",
        "--program",
        "--json",
        "--audit",
        "--resume",
        "--data-dir=~",
        "--help",
        "--",
    ]
)
VALUES = (
    WORDS | YAML | st.sampled_from(preset_names()) | st.sampled_from(["nbaa", "cora", "embedded", "faithful", "-1"])
)


COMMANDS = ["train", "certs", "data", "acount", "--version", "identity new", "consortium check", "consortium kit"]


@given(st.sampled_from(COMMANDS), st.lists(OPTIONS | VALUES, max_size=6))
@modest
def test_random_command_lines(run, command, arguments):
    if command in ("certs", "identity new"):
        arguments = [*arguments, "--days", "0"]  # makes none
    assert run(*command.split(), *arguments) in (0, 1, 2)


@given(st.lists(st.sampled_from(["--name", "--aggregator", "--coordinator", "--site", "--"]) | VALUES, max_size=8))
@modest
def test_random_rosters(run, arguments):
    assert run("consortium", "new", *arguments) in (0, 2)


ACCOUNT = st.fixed_dictionaries(
    {
        "--sampler": st.sampled_from(["fixed", "poisson", "x"]),
        "--clients": st.sampled_from(["1", "30", "10000000000", "1e300", "0", "-5"]),
        "--cohort": st.sampled_from(["1", "3", "10000000000", "0"]),
        "--rounds": st.sampled_from(["1", "500", "1000000000", "1e18", "0"]),
        "--noise-multiplier": st.sampled_from(["1e-300", "1e300", "1e-9", "1e-6", "1", "1e6", "nan", "inf", "-1", "0"]),
        "--delta": st.sampled_from(["1e-300", "1e-5", "0.999", "0", "1", "nan"]),
        "--accountant": st.sampled_from(["tightest", "rdp", "pld", "x"]),
    }
)


@given(ACCOUNT)
@modest
def test_random_accounts(run, options):
    assert run("account", *(word for option in options.items() for word in option)) in (0, 2)


def test_the_commands_tried_are_those_that_there_are():
    assert {"train", "certs", "account"} <= {command.callback.__name__ for command in app.registered_commands}
