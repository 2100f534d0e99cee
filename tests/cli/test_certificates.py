"""`safegnn certs`: what it writes, what it prints, what it refuses."""

from __future__ import annotations

from pathlib import Path

import pytest

from orchestrator.transport.tls import ROLES, Identity


def test_certificates_are_written_and_every_role_learns_what_it_needs(safegnn):
    status, out, err = safegnn("certs", "folder", "--days", "2")
    assert (status, err) == (0, "")
    for role in ROLES:
        Identity.load(Path("folder"), role)
        name = role.replace(" ", "-")
        assert f"{role}: ca.crt, {name}.crt, {name}.key\n" in out
    assert "engine.certificates=folder" in out


def test_nothing_is_overwritten(safegnn):
    safegnn("certs", "folder")
    before = Path("folder/ca.crt").read_bytes()
    status, out, err = safegnn("certs", "folder")
    assert (status, out) == (2, "")
    assert err.startswith("safegnn: folder exists already") and err.count("\n") == 1
    assert Path("folder/ca.crt").read_bytes() == before


@pytest.mark.parametrize("arguments", [(), ("folder", "--days", "0"), ("folder", "--days", "soon")])
def test_wrong_arguments_are_one_line(safegnn, arguments):
    status, out, err = safegnn("certs", *arguments)
    assert (status, out) == (2, "")
    assert err.startswith("safegnn: ") and err.count("\n") == 1
    assert not (Path("folder")).exists()


def test_a_folder_that_cannot_be_made_is_one_line(safegnn):
    Path("file").write_text("")
    status, out, err = safegnn("certs", "file/folder")
    assert (status, out) == (2, "")
    assert "cannot be written (Not a directory)" in err and err.count("\n") == 1
