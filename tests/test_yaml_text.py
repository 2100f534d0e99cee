"""YAML: what is read as it looks, and what is refused because it would not be."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.config import load_config
from orchestrator.errors import ConfigError
from orchestrator.yaml_text import dump, parse


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("0x10", 16),
        ("1_000", 1000),
        (".5", 0.5),
        ("1e3", 1000.0),
        ("1E-3", 0.001),
        ("5e+2", 500.0),
        ("+12", 12),
        ("0", 0),
        ("0.50", 0.5),
        ("2024-05-01", "2024-05-01"),
        ("2024-05-01 10:00:00", "2024-05-01 10:00:00"),
        ("2020-13-45", "2020-13-45"),
        ("'010'", "010"),
        ('"1:30"', "1:30"),
        ("10:75", "10:75"),
        ("1.2.3", "1.2.3"),
        ("&a 5", 5),
        ("[&lr 0.1, *lr]", [0.1, 0.1]),
    ],
)
def test_what_looks_like_something_is_that(text, value):
    read = parse(text, "here")
    assert read == value and type(read) is type(value)


@pytest.mark.parametrize(
    "text", ["010", "08", "0666", "-0127", "+07", "009", "00", "0_8", "a: 010", "010: a", "[1, 02]"]
)
def test_a_leading_zero_is_refused(text):
    with pytest.raises(ConfigError, match=r"^here: not valid YAML: line 1: [-+]?0\w+: a number has no leading zero"):
        parse(text, "here")


@pytest.mark.parametrize("text", ["1:30", "20:30:20", "190:20:30.15", "-1:30", "a: 22:22", "12:30:45"])
def test_base_60_is_refused(text):
    with pytest.raises(ConfigError, match="a number has no colon"):
        parse(text, "here")


LAUGHS = "a: &a [lol, lol]\n" + "".join(
    f"{b}: &{b} [{', '.join(['*' + a] * 9)}]\n" for a, b in zip("abcdefgh", "bcdefghi", strict=True)
)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (LAUGHS, "line 2: only a value has aliases"),
        ("&a [*a]", "only a value has aliases"),
        ("a: &a {b: *a}", "only a value has aliases"),
        ("base: &base {rounds: 3}\nfederation: {<<: *base}", "line 2: only a value has aliases"),
        ("a: *nowhere", "undefined alias"),
        ("[" * 5000, "nested too deeply"),
        ("{a: " * 3000, "nested too deeply"),
        ("9" * 5000, "digits"),
        ("a:\n\tb: 1", "line 2: "),
        ("a: 1\n b: 2", "line 2: "),
        ("a: 1\na: 2", "'a' stands twice"),
        ("!!int 010", "the tag "),
        ("!!timestamp x", "the tag "),
        ("!!python/name:os.system", "the tag "),
        ("!include other.yaml", "the tag !include"),
        ("!!binary x", "the tag "),
        ("a: b: c", "mapping values are not allowed"),
        ("--- 1\n--- 2", "line 2: "),
        ("? {a: 1}\n: 2", "unhashable"),
        ("\x00", "special characters"),
        ("=", "constructor"),
        ("'open", "scanning"),
    ],
)
def test_what_is_no_settings_file_is_one_line(text, said):
    with pytest.raises(ConfigError) as caught:
        parse(text, "here")
    assert str(caught.value).startswith("here: not valid YAML: ") and said in str(caught.value)
    assert "\n" not in str(caught.value) and len(str(caught.value)) < 300


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.text() | st.from_regex(r"\A[-+]?[0-9:_.eE-]{1,9}\Z"), st.lists
    )
)
def test_what_is_written_is_read_again(value):
    assert parse(dump({"a": value}), "here") == {"a": value}


def test_numbers_become_what_a_setting_takes(tmp_path):
    path = tmp_path / "settings.yaml"
    path.write_bytes(
        b"\xef\xbb\xbffederation: {rounds: 1e3, cohort: 0xA}\nprivacy: {clip_norm: .5}\nclients: {count: 1_000}\n"
    )
    config = load_config(file=path)
    assert (config.federation.rounds, config.federation.cohort) == (1000, 10)
    assert (config.privacy.clip_norm, config.clients.count) == (0.5, 1000)


def test_what_is_long_is_shown_in_part():
    with pytest.raises(ConfigError) as caught:
        load_config(overrides=[f"federation.rounds=[{', '.join(['1'] * 5000)}]"])
    assert str(caught.value).startswith("federation.rounds: ") and len(str(caught.value)) < 400
