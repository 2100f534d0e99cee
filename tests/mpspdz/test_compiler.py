"""Compiled once for each shape, found again, and never half."""

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest

from mpc_programs.rules import RoundParameters
from orchestrator.errors import ConfigError
from orchestrator.mpspdz.compiler import compile_program
from orchestrator.mpspdz.shape import Shape

PARAMETERS = RoundParameters("f2gnn", 3, ratio_max=8.0)
SHAPE = Shape("assisted", "semi2k", PARAMETERS, 100)


def compiled(standin):
    log = standin.home / "compiled"
    return log.read_text().splitlines() if log.exists() else []


def test_a_shape_is_compiled_once(standin, tmp_path):
    first = compile_program(standin, SHAPE, tmp_path / "cache")
    again = compile_program(standin, SHAPE, tmp_path / "cache")
    assert first == again
    assert compiled(standin) == ["assisted-3-0-f2gnn-0.5-4.0-2.0-8.0"]
    assert (first.folder / "Programs" / "Schedules" / f"{first.name}.sch").is_file()


@pytest.mark.parametrize(
    "change",
    [
        {"protocol": "dealer-ring"},
        {"program": "scalar-first"},
        {"parameters": replace(PARAMETERS, cohort=4)},
        {"parameters": replace(PARAMETERS, lam=8.0)},
        {"parameters": replace(PARAMETERS, ratio_max=None)},
    ],
)
def test_another_shape_is_compiled_anew(standin, tmp_path, change):
    first = compile_program(standin, SHAPE, tmp_path)
    assert compile_program(standin, replace(SHAPE, **change), tmp_path).folder != first.folder
    assert len(compiled(standin)) == 2


def test_the_assisted_program_does_not_depend_on_the_model(standin, tmp_path):
    first = compile_program(standin, SHAPE, tmp_path)
    assert compile_program(standin, replace(SHAPE, length=10**6), tmp_path) == first


def test_a_compiler_that_fails_leaves_nothing_and_says_why(standin, tmp_path, monkeypatch):
    monkeypatch.setenv("FAIL_TO_COMPILE", "1")
    with pytest.raises(ConfigError, match=r"assisted\.mpc does not compile: CompilerError: no such thing"):
        compile_program(standin, SHAPE, tmp_path / "cache")
    assert list((tmp_path / "cache").iterdir()) == []


def test_two_that_compile_the_same_at_once_both_find_it(standin, tmp_path):
    with ThreadPoolExecutor() as pool:
        results = list(pool.map(lambda _: compile_program(standin, SHAPE, tmp_path / "cache"), range(4)))
    assert len(set(results)) == 1 and results[0].complete
    assert list((tmp_path / "cache").iterdir()) == [results[0].folder]


def test_a_damaged_result_is_made_anew(standin, tmp_path):
    first = compile_program(standin, SHAPE, tmp_path)
    (first.folder / "Programs" / "Schedules" / f"{first.name}.sch").unlink()
    assert compile_program(standin, SHAPE, tmp_path).complete


def test_a_folder_that_cannot_be_written_is_named(standin, tmp_path):
    (tmp_path / "cache").write_text("a file, not a folder")
    with pytest.raises(ConfigError, match=r"cannot compile in .*cache"):
        compile_program(standin, SHAPE, tmp_path / "cache")


def test_unknown_and_unfit_programs_are_refused():
    with pytest.raises(ConfigError, match=r"engine\.program: 'x' is none of assisted, scalar-first, faithful"):
        replace(SHAPE, program="x")
    with pytest.raises(ConfigError, match=r"method\.name to f2gnn"):
        replace(SHAPE, program="faithful", parameters=RoundParameters("fedavg", 3))


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"fairness_max": 1e5}, r"method\.score_max = 100000"),
        ({"ratio_max": 2.0**14}, r"2\^sharing\.integer_bits / privacy\.clip_norm = 16384"),
    ],
)
def test_what_sixteen_bits_cannot_hold_is_refused_by_name(options, text):
    with pytest.raises(ConfigError, match=rf"{text}: 'faithful' on MP-SPDZ .* at most 8192"):
        replace(SHAPE, program="faithful", parameters=replace(PARAMETERS, **options))


def test_an_unknown_protocol_is_refused():
    with pytest.raises(ConfigError, match=r"engine\.protocol: 'spdz' is none of semi2k, dealer-ring"):
        replace(SHAPE, protocol="spdz")


def test_parties_run_as_compiled_and_encrypted():
    assert SHAPE.compiler_options == ["-E", "semi2k", "-R", "128"]
    assert SHAPE.party_options == ["-v", "-R", "128", "-o", "no_memory_output", "-E", "40", "-e"]
    assert "-e" not in replace(SHAPE, protocol="dealer-ring").party_options  # it is always encrypted
    assert replace(SHAPE, program="faithful").compiler_options == ["-E", "semi2k", "-R", "64"]


def test_personal_rules_have_no_program():
    with pytest.raises(ConfigError, match="no program computes the personal rule fedpub"):
        Shape("assisted", "semi2k", RoundParameters("fedpub", 3, embedding=4), 100)
