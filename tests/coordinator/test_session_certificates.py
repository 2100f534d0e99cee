"""Where the certificates of a session come from, and what a fault in them says."""

import tempfile
from datetime import UTC, datetime

import pytest

from orchestrator.errors import ConfigError
from orchestrator.transport.tls import create_certificates
from tests.coordinator.test_two_servers import MODEL, engine, play


def test_certificates_of_a_folder_are_used(certificates):
    with engine(certificates=certificates, preprocessing="dealer") as started:
        started.start(MODEL)
        play(started, 1)


def test_certificates_of_a_session_leave_nothing_behind(tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    with engine() as started:
        started.start(MODEL)
        assert list(tmp_path.iterdir()) == []


def test_an_expired_certificate_is_refused_before_anything_starts(tmp_path):
    folder = tmp_path / "expired"
    create_certificates(folder, 30, datetime(2020, 1, 1, tzinfo=UTC))
    with pytest.raises(ConfigError, match=r"server-0\.crt: the certificate expired on 2020-01-31; .*`safegnn certs`"):
        engine(certificates=folder)


def test_a_server_says_what_is_wrong_with_its_own_files(tmp_path):
    folder = tmp_path / "certificates"
    create_certificates(folder)
    with engine(certificates=folder) as started:
        (folder / "server-1.key").unlink()
        with pytest.raises(ConfigError, match=r"server-1\.key: is missing"):
            started.start(MODEL)
