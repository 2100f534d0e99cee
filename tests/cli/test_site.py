"""`safegnn site`: it starts, says who it is, answers, and ends with its socket; what it cannot do is one line."""

from __future__ import annotations

import subprocess
import sys

import pytest

from orchestrator.agreement.site_file import SiteFile
from orchestrator.site import framing
from orchestrator.site.messages import Begin, Hello, Refused, Welcome, parse_reply
from tests.cli.commands import assert_refused
from tests.site.hospitals import make_hospitals


@pytest.fixture(scope="module")
def hospitals(tmp_path_factory):
    return make_hospitals(tmp_path_factory.mktemp("hospitals"))


@pytest.mark.timeout(300)
def test_a_site_answers_until_it_is_told_to_end(hospitals, tmp_path):
    file = hospitals.file("clinic-a", tmp_path)
    path = SiteFile.read(file).socket
    command = [sys.executable, "-m", "orchestrator.cli", "site", "--config", str(file)]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        try:
            assert process.stderr is not None
            assert process.stderr.readline().startswith("site clinic-a: client 0 of 3 in trial, ")
            said = parse_reply(framing.ask(path, Hello().to_bytes(), 60.0))
            assert isinstance(said, Welcome) and (said.name, said.features) == ("clinic-a", 5)
            refused = parse_reply(framing.ask(path, Begin(b"x").to_bytes(), 60.0))
            assert isinstance(refused, Refused)
            process.terminate()
            rest = process.communicate(timeout=60)[1]
        finally:
            process.kill()
    assert rest == f"clinic-a refuses: {refused.reason}\nsafegnn: interrupted\n"
    assert process.returncode == 128 + 15 and not path.exists()


def test_what_cannot_be_done_is_one_line(hospitals, tmp_path, safegnn):
    assert_refused(safegnn("site", "--config", "none.yaml"), 2, "none.yaml: cannot be read")
    file = hospitals.file("clinic-a", tmp_path, identity=str(hospitals.folder / "keys" / "hub"))
    assert_refused(safegnn("site", "--config", str(file)), 2, "hub is coordinator in trial, and no site")
    file = hospitals.file("clinic-b", tmp_path, data={"name": "nba", "dir": "nowhere"})
    assert_refused(safegnn("site", "--config", str(file)), 1, "nowhere")
