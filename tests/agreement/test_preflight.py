"""What a look at everything finds, against listeners that are, or are not, who they should be."""

from __future__ import annotations

import socket
import threading
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
import yaml

from orchestrator.agreement.from_settings import plan_of
from orchestrator.agreement.identity import OwnKey
from orchestrator.agreement.preflight import examine
from orchestrator.agreement.roster import Member
from orchestrator.config import load_config
from orchestrator.transport.channel import listen
from orchestrator.transport.door import Door
from tests.agreement.participants import make_consortium

POLICY = {"noise_multiplier": 1, "largest_epsilon": None, "min_cohort": 1}


@contextmanager
def standing_at(listener, identity):
    """A door at which somebody stands and lets nobody in."""
    stop, stopping = socket.socketpair()
    door = Door(listener, identity, None, lambda role, number: "", lambda *_: None)

    def attend():
        while not door.attend(None, stopping):
            pass
        door.close()

    thread = threading.Thread(target=attend)
    thread.start()
    try:
        yield
    finally:
        stop.close()
        thread.join()
        stopping.close()


@pytest.fixture
def place(tmp_path):
    """A consortium whose two aggregators have ports that are held, and nobody who speaks there yet."""
    with listen("127.0.0.1", 0) as first, listen("127.0.0.1", 0) as second:
        ports = first.getsockname()[1], second.getsockname()[1]
        made = make_consortium(tmp_path, ports)
        made.listeners = (first, second)
        yield made


def own_file(place, name, **others):
    file = place.folder / f"{name}.yaml"
    file.write_text(yaml.safe_dump({"identity": name, "roster": str(place.file), **others}))
    return file


def found(file, *run):
    rows = {row.what: row for row in examine(file, *run)}
    assert all("\n" not in row.detail + row.cure for row in rows.values())
    return rows


def server_row(rows, role):
    [row] = [row for what, row in rows.items() if what.startswith(f"{role} at ")]
    return row


def test_where_everybody_is_there_everything_is_well(place):
    file = own_file(place, "hub")
    with (
        standing_at(place.listeners[0], place.identity("uni-x")),
        standing_at(place.listeners[1], place.identity("uni-y")),
    ):
        rows = found(file)
    assert {row.state for row in rows.values()} == {"ok", "unknown"}
    assert rows["files"].detail == "hub is coordinator in trial"
    assert rows["roster"].detail.replace(" ", "") == "digest" + place.roster.digest
    assert "accepts the other's certificate" in server_row(rows, "server 0").detail
    assert {what for what, row in rows.items() if row.state == "unknown"} == {"versions", "clocks", "policy"}


def test_somebody_else_at_an_address_is_named(place):
    with (
        standing_at(place.listeners[0], place.identity("uni-y")),
        standing_at(place.listeners[1], place.identity("uni-y")),
    ):
        row = server_row(found(own_file(place, "hub")), "server 0")
    assert (row.state, row.detail) == ("fault", "shows the certificate of server 1")


def test_a_stranger_at_an_address_is_refused(place, tmp_path):
    other = make_consortium(tmp_path / "other")
    with standing_at(place.listeners[0], other.identity("uni-x")):
        place.listeners[1].close()
        rows = found(own_file(place, "hub"))
    row = server_row(rows, "server 0")
    assert (row.state, row.detail) == ("fault", "shows a certificate that is not in this side's roster")
    row = server_row(rows, "server 1")
    assert row.state == "fault" and row.detail.startswith("no connection (") and "uni-y started" in row.cure


def test_a_peer_that_does_not_know_this_one_is_heard(place, tmp_path):
    """It has an older roster: TLS tells only when something is read."""
    older = replace(place.roster, coordinator=make_consortium(tmp_path / "other").roster.coordinator)
    with standing_at(place.listeners[1], older.tls(place.keys["uni-y"], "server 1")):
        place.listeners[0].close()
        row = server_row(found(own_file(place, "hub")), "server 1")
    assert row.state == "fault" and "it is not in the other side's roster" in row.detail


def test_a_name_that_does_not_resolve_is_told(place):
    first, second = place.roster.aggregators
    roster = replace(place.roster, aggregators=(replace(first, address=("no-such-host.invalid", 7700)), second))
    place.file.write_text(roster.to_yaml())
    place.listeners[1].close()
    row = server_row(found(own_file(place, "hub")), "server 0")
    assert row.state == "fault" and row.detail.startswith("the name does not resolve (")


def test_an_aggregator_looks_at_its_port_and_at_the_other_one(place):
    port = place.listeners[0].getsockname()[1]
    file = own_file(place, "uni-x", listen=f"127.0.0.1:{port}", policy=POLICY)
    with standing_at(place.listeners[1], place.identity("uni-y")):
        rows = found(file)
        assert rows[f"own port {port}"].state == "warning"
        assert [what for what in rows if " at " in what] == [
            f"server 1 at 127.0.0.1:{place.listeners[1].getsockname()[1]}"
        ]
        place.listeners[0].close()
        assert found(file)[f"own port {port}"].state == "ok"


def test_a_site_looks_at_the_coordinator_alone(place):
    with listen("127.0.0.1", 0) as superlink:
        coordinator = replace(place.roster.coordinator, address=superlink.getsockname())
        place.file.write_text(replace(place.roster, coordinator=coordinator).to_yaml())
        rows = found(own_file(place, "north", data={"name": "files"}, policy=POLICY))
    assert [(what.split(" ")[0], row.state) for what, row in rows.items() if " at " in what] == [("coordinator", "ok")]


@pytest.mark.parametrize(
    ("start", "days", "state", "text"),
    [
        (datetime(2020, 1, 1, tzinfo=UTC), 3, "fault", "the certificate expired on 2020-01-04"),
        (datetime.now(UTC) + timedelta(days=10), 300, "fault", "the certificate is not valid before"),
        (datetime.now(UTC), 29, "warning", "expires on 2"),
    ],
)
def test_a_certificate_that_is_or_will_be_out_of_date_is_told_with_its_owner(place, tmp_path, start, days, state, text):
    south = Member("south", OwnKey.create(tmp_path / "new", "south", days, start).certificate)
    place.file.write_text(replace(place.roster, sites=(place.roster.sites[0], south)).to_yaml())
    rows = found(own_file(place, "north", policy=POLICY))
    assert rows["certificate of site south"].state == state and text in rows["certificate of site south"].detail
    assert "certificates" not in rows and "certificate of site north" not in rows


def test_a_run_is_held_against_the_policy(place):
    settings = ["clients.count=2", "federation={rounds: 5, cohort: 2}", "method={name: fedavg}"]
    noise = "privacy={noise_multiplier: 2.0, clip_norm: 0.5}"
    file = own_file(place, "north", policy=POLICY)
    allowed = found(file, plan_of(load_config(overrides=[*settings, noise])), 5)["policy"]
    assert (allowed.state, allowed.detail) == ("ok", "allows the run")
    refused = found(file, plan_of(load_config(overrides=settings)), 5)["policy"]
    assert (refused.state, refused.detail) == ("fault", "needs noise_multiplier >= 1, the run says 0")


@pytest.mark.parametrize(
    ("tree", "text"),
    [
        ({"identity": "uni-x"}, "listen: must be given"),
        ({"identity": "uni-x", "listen": "127.0.0.1:7700", "policy": POLICY, "x": 1}, "x: unknown setting"),
        ({"identity": "uni-x", "roster": "nowhere.yaml"}, "nowhere.yaml: is missing"),
        ({"identity": "nowhere"}, "identity.crt: is missing"),
        ({"identity": "hub", "policy": {}}, "policy.noise_multiplier: must be given"),
    ],
)
def test_files_that_cannot_be_used_are_the_only_row(place, tree, text):
    (place.folder / "own.yaml").write_text(yaml.safe_dump({"roster": "consortium.yaml", **tree}))
    [row] = found(place.folder / "own.yaml").values()
    assert row.state == "fault" and text in row.detail
