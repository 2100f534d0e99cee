"""Every fault of an installation is one line with its cure."""

from datetime import UTC, datetime
from pathlib import Path

import pytest

from orchestrator.errors import ConfigError
from orchestrator.mpspdz.installation import certificate_fault, find
from tests.mpspdz_standin import write_certificate


def test_the_environment_names_the_place(standin, monkeypatch):
    monkeypatch.setenv("MPSPDZ_HOME", str(standin.home))
    assert find() == standin
    assert standin.version == "0.4.2"


def test_without_one_it_says_which_release_to_unpack_where(tmp_path, monkeypatch):
    monkeypatch.delenv("MPSPDZ_HOME", raising=False)
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ConfigError, match=r"no installation at third_party/MP-SPDZ; unpack the binary release 0\.4\.2"):
        find()
    monkeypatch.setenv("MPSPDZ_HOME", str(tmp_path / "nowhere"))
    with pytest.raises(ConfigError, match=r"nowhere.*MPSPDZ_HOME points there"):
        find()


def test_a_missing_or_unusable_binary_is_named_with_its_cure(standin):
    standin.check_certificates("dealer-ring")
    path = standin.home / "semi2k-party.x"
    assert standin.binary("semi2k") == path
    path.chmod(0o644)
    with pytest.raises(ConfigError, match=r"semi2k-party\.x is not executable; run `chmod \+x"):
        standin.binary("semi2k")
    path.unlink()
    with pytest.raises(ConfigError, match=r"semi2k-party\.x is missing; run Scripts/tldr\.sh"):
        standin.binary("semi2k")


def test_a_version_that_is_not_stated_is_unknown(standin):
    (standin.home / "CHANGELOG.md").unlink()
    assert standin.version == "unknown"


@pytest.mark.parametrize(
    ("damage", "text"),
    [
        (lambda folder: (folder / "P1.pem").unlink(), r"P1\.pem is missing"),
        (lambda folder: (folder / "P1.key").unlink(), r"P1\.key is missing"),
        (lambda folder: (folder / "P1.pem").write_text("nothing"), r"P1\.pem or P1\.key cannot be read"),
        (lambda folder: (folder / "P1.key").write_bytes((folder / "P0.key").read_bytes()), r"does not match P1\.key"),
        (lambda folder: write_certificate(folder, 1, datetime(2024, 5, 1, tzinfo=UTC)), "expired on 2024-05-01"),
        (lambda folder: write_certificate(folder, 1, datetime(2999, 5, 1, tzinfo=UTC)), "valid only from 2999-03-02"),
        (lambda folder: write_certificate(folder, 1, linked=False), r"has no hash link \(c_rehash\)"),
    ],
)
def test_faults_of_certificates_are_told_apart(standin, damage, text):
    assert certificate_fault(standin.certificates, 1) == ""
    damage(standin.certificates)
    with pytest.raises(ConfigError, match=rf"{text}; run `Scripts/setup-ssl\.sh 2` in {Path(standin.home)}"):
        standin.check_certificates("semi2k")
