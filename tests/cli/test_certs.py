"""`safegnn certs`: what it writes, what it prints, what it refuses."""

from __future__ import annotations

import sys

import pytest

from orchestrator import cli
from orchestrator.transport.tls import ROLES, Identity


@pytest.fixture
def safegnn(monkeypatch, tmp_path, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "100")

    def run(*arguments):
        monkeypatch.setattr(sys, "argv", ["safegnn", *arguments])
        with pytest.raises(SystemExit) as caught:
            cli.main()
        return int(caught.value.code or 0), *capsys.readouterr()

    return run


def test_certificates_are_written_and_every_role_learns_what_it_needs(safegnn, tmp_path):
    status, out, err = safegnn("certs", "folder", "--days", "2")
    assert (status, err) == (0, "")
    for role in ROLES:
        Identity.load(tmp_path / "folder", role)
        name = role.replace(" ", "-")
        assert f"{role}: ca.crt, {name}.crt, {name}.key\n" in out
    assert "engine.certificates=folder" in out


def test_nothing_is_overwritten(safegnn, tmp_path):
    safegnn("certs", "folder")
    before = (tmp_path / "folder" / "ca.crt").read_bytes()
    status, out, err = safegnn("certs", "folder")
    assert (status, out) == (2, "")
    assert err.startswith("safegnn: folder exists already") and err.count("\n") == 1
    assert (tmp_path / "folder" / "ca.crt").read_bytes() == before


@pytest.mark.parametrize("arguments", [(), ("folder", "--days", "0"), ("folder", "--days", "soon")])
def test_wrong_arguments_are_one_line(safegnn, tmp_path, arguments):
    status, out, err = safegnn("certs", *arguments)
    assert (status, out) == (2, "")
    assert err.startswith("safegnn: ") and err.count("\n") == 1
    assert not (tmp_path / "folder").exists()


def test_a_folder_that_cannot_be_made_is_one_line(safegnn, tmp_path):
    (tmp_path / "file").write_text("")
    status, out, err = safegnn("certs", "file/folder")
    assert (status, out) == (2, "")
    assert "cannot be written (Not a directory)" in err and err.count("\n") == 1
