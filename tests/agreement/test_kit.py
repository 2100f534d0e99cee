"""Kits: everything that a participant needs, nothing secret, and files that their readers accept as they are."""

from __future__ import annotations

import re
import stat

import pytest
import yaml

from orchestrator.agreement.aggregator_file import AggregatorFile
from orchestrator.agreement.kit import draft, kit, write_draft, write_kit
from orchestrator.agreement.participant_file import ParticipantFile
from orchestrator.agreement.policy import Policy, SitePolicy
from orchestrator.agreement.roster import Roster
from orchestrator.config import DataConfig
from orchestrator.errors import ConfigError

FILES = {"uni-x": "aggregator.yaml", "uni-y": "aggregator.yaml", "hub": "coordinator.yaml", "north": "site.yaml"}
AGGREGATORS = {"uni-x": "x.example:7700", "uni-y": "y.example:7700"}


@pytest.mark.parametrize("name", FILES)
def test_a_kit_is_the_public_roster_an_own_file_and_what_to_do(consortium, tmp_path, name):
    folder = tmp_path / "kit"
    write_kit(consortium.roster, name, folder)
    assert {path.name for path in folder.iterdir()} == {"consortium.yaml", FILES[name], "README.txt"}
    assert {stat.S_IMODE(path.stat().st_mode) for path in folder.iterdir()} == {0o600}
    assert Roster.read(folder / "consortium.yaml") == consortium.roster
    readme = (folder / "README.txt").read_text()
    assert f"doctor --deployment {FILES[name]}" in readme and "consortium check consortium.yaml" in readme
    assert not any("PRIVATE" in path.read_text() for path in folder.iterdir())


def test_no_file_of_a_kit_but_the_roster_speaks_of_others(consortium):
    for name, file in FILES.items():
        own = kit(consortium.roster, name)
        others = [other for other in consortium.keys if other != name]
        assert not any(other.encode() in own[part] for part in (file, "README.txt") for other in others)


def test_an_aggregators_file_reads_as_it_is(consortium, tmp_path):
    write_kit(consortium.roster, "uni-y", tmp_path / "kit")
    (tmp_path / "kit" / "identity").symlink_to(consortium.folder / "uni-y")
    read = AggregatorFile.read(tmp_path / "kit" / "aggregator.yaml")
    assert read.listen == ("0.0.0.0", 7701) and read.status[0] == "127.0.0.1"
    assert read.policy == Policy(noise_multiplier=1.0, largest_epsilon=8.0, min_cohort=2)  # there are two sites
    own, roster, role = read.participant()
    assert (own.name, roster, role) == ("uni-y", consortium.roster, "server 1")


def test_a_coordinators_file_reads_as_it_is(consortium, tmp_path):
    write_kit(consortium.roster, "hub", tmp_path / "kit")
    (tmp_path / "kit" / "identity").symlink_to(consortium.folder / "hub")
    assert ParticipantFile.read(tmp_path / "kit" / "coordinator.yaml").participant()[2] == "coordinator"


def test_a_sites_file_says_what_each_of_its_readers_takes(consortium):
    tree = yaml.safe_load(kit(consortium.roster, "north")["site.yaml"])
    assert tree.keys() == {"identity", "roster", "socket", "folder", "data", "ledger", "ledger_limit", "policy"}
    assert DataConfig.model_validate(tree["data"]).name == "files"
    assert not SitePolicy.model_validate(tree["policy"]).exact_metrics


@pytest.mark.parametrize("name", FILES)
def test_what_is_commented_out_in_a_file_would_read_too(consortium, name):
    text = re.sub("(?m)^  # ", "  ", kit(consortium.roster, name)[FILES[name]].decode())
    policy = yaml.safe_load(text).get("policy")
    assert policy is None or SitePolicy.model_validate(policy).clients == "untrusted"


def test_who_is_not_in_the_roster_gets_no_kit(consortium, tmp_path):
    with pytest.raises(ConfigError, match="west: no participant of trial"):
        write_kit(consortium.roster, "west", tmp_path / "kit")
    assert not (tmp_path / "kit").exists()


def test_nothing_is_overwritten(consortium, tmp_path):
    (tmp_path / "kit").mkdir()
    with pytest.raises(ConfigError, match="exists already"):
        write_kit(consortium.roster, "north", tmp_path / "kit")
    (tmp_path / "consortium.yaml").write_text("mine")
    with pytest.raises(ConfigError, match="exists already"):
        write_draft(tmp_path / "consortium.yaml", "other")
    assert (tmp_path / "consortium.yaml").read_text() == "mine" and not list((tmp_path / "kit").iterdir())


def test_a_kit_with_a_private_key_is_none(consortium, monkeypatch):
    """Whatever way it would have come in: neither a roster nor a name can hold one."""
    key = (consortium.folder / "north" / "identity.key").read_text()
    monkeypatch.setattr(Roster, "to_yaml", lambda roster: f"# {key}")
    with pytest.raises(ConfigError, match="a private key would be in the kit"):
        kit(consortium.roster, "north")


def test_a_draft_becomes_a_roster_by_certificates_alone(consortium, tmp_path):
    file = tmp_path / "consortium.yaml"
    write_draft(file, draft("trial", AGGREGATORS, ("hub", "h.example:9092"), ["north", "south"]))
    with pytest.raises(ConfigError) as caught:
        Roster.read(file)
    assert all(f"{name}: certificate: " in str(caught.value) for name in consortium.keys)  # all at once
    for name, key in consortium.keys.items():
        (tmp_path / "certificates" / f"{name}.crt").write_bytes(key.certificate)
    read = Roster.read(file)
    assert [member.name for member in read.members.values()] == ["uni-x", "uni-y", "hub", "north", "south"]
    assert read.coordinator.address == ("h.example", 9092) and read.aggregators[1].address == ("y.example", 7700)


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"name": "A b"}, "the name 'A b': expected"),
        ({"aggregators": {"uni-x": "x.example:7700"}}, "there are 1 aggregators; expected two"),
        ({"aggregators": AGGREGATORS | {"uni-y": "y"}}, "uni-y: expected host:port"),
        ({"coordinator": ("hub", "")}, "hub: expected host:port"),
        ({"coordinator": ("north", None)}, "north stands twice"),
        ({"sites": ["north", "uni-x"]}, "uni-x stands twice"),
        ({"sites": ["no rth"]}, "the name 'no rth': expected"),
        ({"sites": []}, "there is no site"),
    ],
)
def test_a_draft_that_cannot_become_a_roster_is_refused(changes, text):
    given = {"name": "trial", "aggregators": AGGREGATORS, "coordinator": ("hub", None), "sites": ["north"]} | changes
    with pytest.raises(ConfigError, match=text):
        draft(**given)
