"""A participant's own file: relative paths, and one line for whatever is wrong."""

from __future__ import annotations

import pytest
import yaml

from orchestrator.agreement.aggregator_file import AggregatorFile
from orchestrator.agreement.identity import OwnKey
from orchestrator.agreement.participant_file import ParticipantFile
from orchestrator.errors import ConfigError

GOOD = {
    "identity": "identity",
    "roster": "consortium.yaml",
    "listen": "0.0.0.0:7700",
    "policy": {"noise_multiplier": 1, "largest_epsilon": None},
}


@pytest.fixture
def read(tmp_path):
    """``read(tree)`` of an aggregator's file."""

    def build(tree):
        file = tmp_path / "aggregator.yaml"
        file.write_text(tree if isinstance(tree, str) else yaml.safe_dump(tree))
        return AggregatorFile.read(file)

    return build


def test_paths_are_relative_to_the_file(read, tmp_path):
    made = read(GOOD | {"roster": "/etc/consortium.yaml"})
    assert made.identity == tmp_path / "identity"
    assert str(made.roster) == "/etc/consortium.yaml"


@pytest.mark.parametrize(
    ("tree", "text"),
    [
        ("", "expected settings by name"),
        ("identity: [", "not valid YAML: line 1"),
        ({k: v for k, v in GOOD.items() if k != "listen"}, "listen: must be given"),
        (GOOD | {"listen": 7700}, "listen: expected host:port, got 7700"),
        (GOOD | {"status": "localhost"}, "status: expected host:port"),
        (GOOD | {"polcy": {}}, "polcy: unknown setting (did you mean policy?)"),
        (GOOD | {"policy": {"noise_multiplier": 1}}, "policy.largest_epsilon: must be given"),
        (
            GOOD | {"policy": GOOD["policy"] | {"min_cohrt": 1}},
            "policy.min_cohrt: unknown setting (did you mean",
        ),
        (GOOD | {"policy": GOOD["policy"] | {"exact_metrics": True}}, "policy.exact_metrics: unknown setting"),
        (GOOD | {"timeouts": {"silence_sec": 0}}, "timeouts.silence_sec: Input should be greater than 0"),
        (GOOD | {"most_runs": 0}, "most_runs: Input should be greater than or equal to 1"),
    ],
)
def test_what_is_wrong_is_one_line(read, tmp_path, tree, text):
    with pytest.raises(ConfigError) as caught:
        read(tree)
    message = str(caught.value)
    assert message.startswith(f"{tmp_path / 'aggregator.yaml'}: ") and text in message and "\n" not in message


@pytest.mark.parametrize("content", [None, b"\xff"], ids=["missing", "binary"])
def test_a_file_that_cannot_be_read_is_one_line(tmp_path, content):
    if content is not None:
        (tmp_path / "own.yaml").write_bytes(content)
    with pytest.raises(ConfigError, match=r"own\.yaml: cannot be read"):
        ParticipantFile.read(tmp_path / "own.yaml")


def test_who_has_another_key_than_the_roster_is_told_both(consortium, tmp_path):
    other = OwnKey.create(tmp_path / "identity", "north")
    (tmp_path / "own.yaml").write_text(yaml.safe_dump({"identity": "identity", "roster": str(consortium.file)}))
    with pytest.raises(ConfigError) as caught:
        ParticipantFile.read(tmp_path / "own.yaml").participant()
    assert other.fingerprint in str(caught.value) and consortium.keys["north"].fingerprint in str(caught.value)
    assert str(consortium.file) in str(caught.value)
