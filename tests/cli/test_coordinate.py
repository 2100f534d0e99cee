"""A deployment rehearsed on one host by the command: services, workers at their sockets, a run folder."""

from __future__ import annotations

import json
import threading
from contextlib import ExitStack, closing, suppress

import pytest

from orchestrator.agreement.site_file import SiteFile
from orchestrator.site.worker import open_site, serve
from tests.aggregator.services import Threads, free_ports
from tests.cli.commands import assert_refused
from tests.site.hospitals import NAMES, make_hospitals


@pytest.fixture(scope="module")
def consortium(tmp_path_factory):
    """Both services, and three workers in threads that answer at their sockets; the options that name them."""
    ports, folder = free_ports(4), tmp_path_factory.mktemp("rehearsal")
    hospitals = make_hospitals(folder, ports[:2])
    keys = [hospitals.keys[name] for name in ("uni-x", "uni-y")]
    options = []
    with closing(Threads(hospitals.roster, keys, folder, ports[2:], noise_multiplier=1.0)), ExitStack() as held:
        for name in NAMES:
            site = SiteFile.read(hospitals.file(name, folder / "homes"))
            worker, listener = held.enter_context(open_site(site))

            def answer(listener=listener, worker=worker):
                with suppress(OSError):  # the listener is closed when the module's tests are done
                    serve(listener, worker.reply)

            threading.Thread(target=answer, daemon=True).start()
            options += ["--site", f"{name}={site.socket}"]
        file = folder / "coordinator.yaml"
        file.write_text(
            json.dumps({"identity": str(folder / "keys" / "hub"), "roster": str(hospitals.folder / "consortium.yaml")})
        )
        yield ["--coordinator", str(file)], options


RUN = (
    "clients={count: 3, partition: own}",
    "federation={rounds: 2, cohort: 3, min_cohort: 2}",
    "evaluation.where=nowhere",
)
METHOD = ("method={name: fedavg, local_epochs: 1}", "model.hidden=8")
NOISE = ("privacy={clip_norm: 0.5, noise_multiplier: 2.0}",)


def settings(*lines):
    return [word for line in lines for word in ("--set", line)]


def test_a_run_leaves_a_folder_and_goes_on(safegnn, consortium, tmp_path):
    named, sites = consortium
    place = f"run.dir='{tmp_path}'"
    status, out, _ = safegnn("coordinate", *named, *sites, *settings(*RUN, *METHOD, *NOISE, place))
    assert status == 0
    folder = next(tmp_path.glob("own-fedavg-embedded-*"))
    assert str(folder) in out and (folder / "model.pt").exists()
    more = ("--resume", str(folder), "--set", "federation.rounds=3")
    status, out, _ = safegnn("coordinate", *named, *sites, *more)
    assert status == 0 and len((folder / "metrics.jsonl").read_text().splitlines()) == 3


def test_what_the_services_do_not_allow_is_one_line(safegnn, consortium, tmp_path):
    named, sites = consortium
    place = f"run.dir='{tmp_path}'"
    result = safegnn("coordinate", *named, *sites, *settings(*RUN, *METHOD, place))
    assert result[0] != 0 and "aggregator uni-x refuses: needs noise_multiplier >= 1, the run says 0" in result[2]


def test_sites_and_files_that_are_none_are_one_line(safegnn, consortium, tmp_path):
    named, sites = consortium
    run = settings(*RUN, *METHOD)
    assert_refused(safegnn("coordinate", *named, "--site", "clinic-a", *run), 2, "expected NAME=SOCKET")
    stranger = ("--site", "clinic-z=/nowhere.sock")
    assert_refused(safegnn("coordinate", *named, *stranger, *run), 2, "--site clinic-z: the roster trial has no such")
    nowhere = ("--coordinator", str(tmp_path / "none.yaml"))
    assert_refused(safegnn("coordinate", *nowhere, *sites, *run), 2, "none.yaml: cannot be read")
