"""Every thing that can be missing has a row, and the row has a cure."""

from datetime import UTC, datetime

import pytest

from orchestrator.mpspdz import doctor
from orchestrator.mpspdz.doctor import examine
from tests.mpspdz_standin import write_certificate


def by_name(home):
    return {finding.what: finding for finding in examine(home)}


def test_a_sound_installation_has_no_fault(standin):
    (standin.home / "compile.py").write_text("")  # `--help` succeeds
    findings = by_name(standin.home)
    assert {finding.state for finding in findings.values() if finding.what != "processor"} == {"ok"}
    assert findings["version"].detail == "0.4.2"
    assert {"compiler", "semi2k-party.x", "dealer-ring-party.x", "certificate of party 2", "free ports"} <= set(
        findings
    )


@pytest.mark.parametrize(
    ("damage", "what", "state", "detail", "cure"),
    [
        (lambda home: (home / "dealer-ring-party.x").unlink(), "dealer-ring-party.x", "fault", "missing", "tldr.sh"),
        (lambda home: (home / "semi2k-party.x").chmod(0o644), "semi2k-party.x", "fault", "executable", "chmod +x"),
        (
            lambda home: write_certificate(home / "Player-Data", 2, datetime(2024, 5, 1, tzinfo=UTC)),
            "certificate of party 2",
            "fault",
            "expired on 2024-05-01",
            "Scripts/setup-ssl.sh 3",
        ),
        (lambda home: (home / "compile.py").write_text("x = = 1"), "compiler", "fault", "SyntaxError", "unpack"),
        (lambda home: (home / "CHANGELOG.md").unlink(), "version", "warning", "unknown", "tested with 0.4.2"),
    ],
)
def test_every_fault_has_a_row_with_its_cure(standin, damage, what, state, detail, cure):
    (standin.home / "compile.py").write_text("")
    damage(standin.home)
    finding = by_name(standin.home)[what]
    assert finding.state == state and detail in finding.detail and cure in finding.cure


def test_without_an_installation_the_other_rows_are_there(tmp_path):
    findings = by_name(tmp_path)
    assert findings["installation"].state == "fault" and "Scripts/tldr.sh" in findings["installation"].cure
    assert findings["free ports"].state == "ok"


def test_what_an_option_that_nobody_asks_for_lacks_is_a_warning(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("MPSPDZ_HOME", raising=False)
    monkeypatch.setattr(doctor, "_COMPILER_PYTHON", (99, 0))
    for required, state in ((False, "warning"), (True, "fault")):
        findings = {finding.what: finding for finding in examine(required=required)}
        assert findings["installation"].state == findings["the compiler's Python"].state == state
        assert "install Python 99.0" in findings["the compiler's Python"].cure
    monkeypatch.setenv("MPSPDZ_HOME", str(tmp_path))
    assert examine()[0].state == "fault"


def test_a_processor_without_the_instructions_is_a_fault(tmp_path, monkeypatch):
    monkeypatch.setattr(doctor.platform, "machine", lambda: "x86_64")
    monkeypatch.setitem(doctor._NEEDED_FLAGS, "x86_64", ("aes", "no-such-flag"))
    finding = by_name(tmp_path)["processor"]
    assert finding.state == "warning" or (finding.state == "fault" and "without no-such-flag" in finding.detail)
