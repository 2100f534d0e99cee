"""`safegnn identity` and `safegnn consortium`, from keys to kits, and `safegnn doctor --deployment`."""

from __future__ import annotations

import json
import shutil
from datetime import UTC, datetime
from pathlib import Path

import pytest

from orchestrator.agreement.identity import OwnKey
from orchestrator.agreement.roster import Roster
from tests.cli.commands import assert_refused

NAMES = ("uni-x", "uni-y", "hub", "north", "south")
NEW = (
    "consortium", "new", "consortium.yaml", "--name", "trial", "--aggregator", "uni-x=x.example:7700",
    "--aggregator", "uni-y=y.example:7700", "--coordinator", "hub", "--site", "north", "--site", "south",
)  # fmt: skip


@pytest.fixture
def collected(safegnn):
    """Everybody has a key, and the roster all certificates."""
    for name in NAMES:
        assert safegnn("identity", "new", name, "--name", name)[0] == 0
    assert safegnn(*NEW)[0] == 0
    for name in NAMES:
        shutil.copy(Path(name) / "identity.crt", Path("certificates") / f"{name}.crt")


def test_a_new_identity_says_what_stays_and_what_is_sent(safegnn):
    status, out, err = safegnn("identity", "new", "folder", "--name", "north", "--days", "2")
    assert (status, err) == (0, "")
    assert "folder/identity.key: the key of north; it stays here" in out
    assert "folder/identity.crt: its certificate; send it" in out
    assert OwnKey.load(Path("folder")).fingerprint in out


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (("folder",), "Missing option '--name'"),
        (("folder", "--name", "North"), "the name 'North': expected 1 to 63"),
        (("folder", "--name", "north", "--days", "0"), "Invalid value for '--days'"),
        (("taken", "--name", "north"), "taken exists already"),
        (("file/folder", "--name", "north"), "file/folder: cannot be written (Not a directory)"),
    ],
)
def test_an_identity_that_cannot_be_made_is_one_line(safegnn, arguments, text):
    Path("taken").mkdir()
    Path("file").write_text("")
    assert_refused(safegnn("identity", "new", *arguments), 2, text)
    assert not Path("folder").exists() and not list(Path("taken").iterdir())


def test_a_new_roster_says_whose_certificates_it_waits_for(safegnn):
    status, out, err = safegnn(*NEW)
    assert (status, err) == (0, "") and "consortium check consortium.yaml" in out
    assert_refused(
        safegnn("consortium", "check", "consortium.yaml"),
        2,
        *(f"{name}: certificate: certificates/{name}.crt: is missing" for name in NAMES),
    )
    before = Path("consortium.yaml").read_bytes()
    assert_refused(safegnn(*NEW), 2, "consortium.yaml exists already")
    assert Path("consortium.yaml").read_bytes() == before


@pytest.mark.parametrize(
    ("replaced", "by", "text"),
    [
        ("uni-x=x.example:7700", "uni-x", "--aggregator uni-x: expected NAME=HOST:PORT"),
        ("uni-x=x.example:7700", "uni-y=y.example:7700", "--aggregator uni-y: stands twice"),
        ("uni-x=x.example:7700", "uni-x=x.example", "uni-x: expected host:port"),
        ("hub", "hub=", "hub: expected host:port"),
        ("south", "north", "north stands twice"),
    ],
)
def test_a_roster_that_cannot_be_is_one_line(safegnn, replaced, by, text):
    assert_refused(safegnn(*(by if argument == replaced else argument for argument in NEW)), 2, text)
    assert not list(Path().iterdir())


@pytest.mark.usefixtures("collected")
def test_check_reads_out_every_key_and_the_digest(safegnn):
    roster = Roster.read(Path("consortium.yaml"))
    status, out, err = safegnn("consortium", "check", "consortium.yaml", "--identity", "north")
    assert (status, err) == (0, "")
    for member in roster.members.values():
        assert f"{member.name}, ok: valid until " in out and member.fingerprint in out
    [own] = [line for line in out.splitlines() if "the key of this participant" in line]
    assert own.startswith("site north: north, ")
    assert roster.digest in out.replace(" ", "") and "warning" not in out
    status, out, _ = safegnn("consortium", "check", "consortium.yaml", "--json")
    document = json.loads(out)
    assert (status, document["ok"], document["digest"]) == (0, True, roster.digest)
    assert [row["name"] for row in document["participants"]] == list(NAMES)


@pytest.mark.usefixtures("collected")
def test_check_knows_ones_own_key_from_another_of_the_same_name(safegnn):
    safegnn("identity", "new", "other", "--name", "north")
    result = safegnn("consortium", "check", "consortium.yaml", "--identity", "other")
    assert_refused(result, 2, "other/identity.crt: is not the certificate of site north in the roster trial")


@pytest.mark.usefixtures("collected")
def test_check_fails_for_what_is_out_of_date_and_warns_of_what_soon_is(safegnn):
    OwnKey.create(Path("old"), "south", 3, datetime(2020, 1, 1, tzinfo=UTC))
    OwnKey.create(Path("soon"), "hub", 3)
    shutil.copy("old/identity.crt", "certificates/south.crt")
    shutil.copy("soon/identity.crt", "certificates/hub.crt")
    status, out, _ = safegnn("consortium", "check", "consortium.yaml")
    assert status == 1
    assert "south, fault: the certificate expired on 2020-01-04" in out
    assert "hub, warning: expires on " in out and "north, ok" in out


@pytest.mark.usefixtures("collected")
def test_check_warns_of_one_host_for_both_aggregators(safegnn):
    text = Path("consortium.yaml").read_text().replace("y.example:7700", "x.example:7701")
    Path("consortium.yaml").write_text(text)
    status, out, _ = safegnn("consortium", "check", "consortium.yaml")
    assert status == 0 and "warning: both aggregators are on x.example: whoever runs that host holds both shares" in out


@pytest.mark.usefixtures("collected")
def test_a_kit_is_made_and_nothing_overwritten(safegnn):
    status, out, err = safegnn("consortium", "kit", "consortium.yaml", "north", "kit")
    assert (status, err) == (0, "") and "kit/README.txt" in out
    assert {path.name for path in Path("kit").iterdir()} == {"consortium.yaml", "site.yaml", "README.txt"}
    assert_refused(safegnn("consortium", "kit", "consortium.yaml", "north", "kit"), 2, "kit exists already")
    assert_refused(safegnn("consortium", "kit", "consortium.yaml", "west", "new"), 2, "west: no participant of trial")
    assert not Path("new").exists()


@pytest.mark.usefixtures("collected", "wide")
def test_the_doctor_looks_at_a_kit_before_a_run(safegnn):
    safegnn("consortium", "kit", "consortium.yaml", "north", "kit")
    shutil.copytree("north", "kit/identity")
    status, out, err = safegnn("doctor", "--deployment", "kit/site.yaml")
    assert (status, err) == (0, "") and "north is site north in trial" in out and "held against no run" in out
    status, out, _ = safegnn("doctor", "--deployment", "kit/site.yaml", "--preset", "nba", "--json")
    document = json.loads(out)
    [policy] = [row for row in document["findings"] if row["what"] == "policy"]
    assert (status, document["ok"], policy["state"]) == (1, False, "fault")
    assert "needs noise_multiplier >= 1, the run says 0" in policy["detail"]


@pytest.mark.usefixtures("collected")
def test_the_doctor_looks_without_a_key_in_vain(safegnn):
    safegnn("consortium", "kit", "consortium.yaml", "north", "kit")
    status, out, _ = safegnn("doctor", "--deployment", "kit/site.yaml", "--json")
    [row] = json.loads(out)["findings"]
    assert status == 1 and row["state"] == "fault" and "kit/identity/identity.crt: is missing" in row["detail"]
