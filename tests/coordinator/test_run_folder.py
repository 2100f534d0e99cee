"""The run folder: what is written comes back, and no crash or full disk costs more than the last round."""

from __future__ import annotations

import csv
import errno
import json
import os
import stat
import sys
from datetime import datetime
from pathlib import Path

import numpy as np
import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import orchestrator.coordinator.run_folder
from orchestrator.coordinator.run_folder import Checkpoint, RunFolder
from orchestrator.errors import RunError
from orchestrator.files import read_arrays, write_atomically


@pytest.fixture
def folder(tiny, tmp_path):
    return RunFolder.create(tiny(tmp_path), "run")


def record(round: int, auc: float | None = 0.5) -> dict:
    metrics = {"accuracy": 0.1 * round, "auc": auc, "counts": {"nodes": 30}, "undefined": {} if auc else {"auc": "one"}}
    return {"round": round, "val": metrics, "test": metrics}


def costs(round: int) -> dict:
    return {"round": round, "online_seconds": 1e-3 * round, "upload_bytes_per_client": 100}


def put(folder: RunFolder, rounds: int) -> None:
    """Complete rounds as the round loop does; client k takes part in round k."""
    states: dict[int, Path] = {}
    for number in range(1, rounds + 1):
        path = folder.state_dir / f"client-{number}-round-{number}.npz"
        write_atomically(path, lambda file: np.savez(file, x=np.zeros(3)))
        states = {**states, number: path}
        folder.append(record(number), costs(number))
        folder.save(Checkpoint(number, np.arange(5) / 7 + number, states))


def lines(folder: RunFolder) -> dict[str, list[str]]:
    names = ("metrics.jsonl", "metrics.csv", "costs.csv")
    return {name: (folder.path / name).read_text().splitlines() for name in names if (folder.path / name).exists()}


def one_line(caught) -> str:
    assert "\n" not in str(caught.value)
    return str(caught.value)


# Folders


def test_folder_names_never_clash(tiny, tmp_path, monkeypatch):
    class Frozen(datetime):
        @classmethod
        def now(cls):
            return cls(2024, 2, 29, 23, 59, 58)

    monkeypatch.setattr(orchestrator.coordinator.run_folder, "datetime", Frozen)
    names = [RunFolder.create(tiny(tmp_path)).path.name for _ in range(3)]
    stem = "synthetic-f2gnn-plaintext-20240229-235958"
    assert names == [stem, f"{stem}-2", f"{stem}-3"]
    assert [RunFolder.create(tiny(tmp_path), "name").path.name for _ in range(2)] == ["name", "name-2"]


def test_a_new_folder_holds_the_configuration_and_the_environment(tiny, tmp_path):
    files = "{nodes: a.csv, edges: b c.txt, id: '1e4', label: 'no', sensitive: s, missing_label: '-1', drop: ['1', x]}"
    config = tiny(
        tmp_path / "deep" / "er",
        f"data={{name: files, dir: raw, files: {files}}}",
        "engine.ports=[1,2,3]",
        "privacy={clip_norm: 1e-3, noise_multiplier: 1e-10}",
    )
    folder = RunFolder.create(config)
    opened, again = RunFolder.open(folder.path)
    assert again == config.absolute() and opened.path == folder.path
    assert isinstance(again.data.files.nodes, Path) and isinstance(again.run.dir, Path)
    assert yaml.safe_load((folder.path / "config.yaml").read_text())["federation"]["cohort"] == 3
    environment = json.loads((folder.path / "environment.json").read_text())
    assert environment["python"] == sys.version.split()[0]
    assert environment["libraries"]["numpy"] == np.__version__
    assert folder.load() is None and folder.records() == [] and folder.costs() == []


def mode(path):
    return stat.S_IMODE(path.stat().st_mode)


@pytest.fixture
def open_umask():
    before = os.umask(0)
    yield
    os.umask(before)


@pytest.mark.usefixtures("open_umask")
def test_a_run_is_its_owners_alone_and_the_folder_of_runs_stays_as_it_is(tiny, tmp_path):
    tmp_path.chmod(0o755)
    folder = RunFolder.create(tiny(tmp_path), "run")
    put(folder, 2)
    folder.save_privacy({"released": 2})
    folder.save_weights([0], np.ones((1, 1)))
    paths = list(folder.path.rglob("*"))
    assert {"config.yaml", "metrics.jsonl", "costs.csv", "state.npz", "privacy.json"} < {path.name for path in paths}
    assert {mode(path) for path in (folder.path, folder.state_dir)} == {0o700}
    assert {path: mode(path) for path in paths if path.is_file() and mode(path) != 0o600} == {}
    folder.append(record(3), costs(3))
    folder.load()  # which drops the last lines again
    assert mode(folder.path / "metrics.jsonl") == 0o600
    assert mode(tmp_path) == 0o755


@pytest.mark.parametrize("kind", ["missing", "empty folder", "file"])
def test_what_is_no_run_is_refused(tmp_path, kind):
    path = tmp_path / "x"
    if kind == "empty folder":
        path.mkdir()
    elif kind == "file":
        path.write_text("seed: 1")
    with pytest.raises(RunError) as caught:
        RunFolder.open(path)
    assert one_line(caught).startswith(f"{path}: no run folder")


def test_a_folder_that_cannot_be_created_is_named(tiny, tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(RunError) as caught:
        RunFolder.create(tiny(tmp_path / "file" / "below"))
    assert str(tmp_path / "file") in one_line(caught)


# Records


def test_records_and_costs_come_back(folder):
    put(folder, 3)
    assert folder.records() == [record(k) for k in (1, 2, 3)]
    assert folder.costs() == [costs(k) for k in (1, 2, 3)]


def test_undefined_metrics_are_null_and_empty_cells(folder):
    folder.append(record(1, None), costs(1))
    folder.append(record(2, 0.25), costs(2))
    assert folder.records()[0]["val"]["auc"] is None
    assert folder.records()[0]["val"]["undefined"] == {"auc": "one"}
    with open(folder.path / "metrics.csv", newline="") as file:
        rows = list(csv.DictReader(file))
    assert [row["val_auc"] for row in rows] == ["", "0.25"]
    assert rows[0].keys() == {"round"} | {
        f"{m}_{x}" for m in ("val", "test") for x in ("accuracy", "auc", "counts_nodes")
    }
    assert not any(None in row.values() or None in row for row in rows)
    assert folder.costs() == [costs(1), costs(2)]


def test_who_was_left_out_stands_in_the_record_and_how_many_in_the_csv(folder):
    left_out = [{"client": 7, "reason": "nothing arrived"}, {"client": 9, "reason": 'a "quoted", reason'}]
    for number, who in ((1, left_out), (2, [])):
        folder.append({**record(number), "clients_left_out": len(who), "left_out": who}, costs(number))
    assert [row["left_out"] for row in folder.records()] == [left_out, []]
    with open(folder.path / "metrics.csv", newline="") as file:
        rows = list(csv.DictReader(file))
    assert [row["clients_left_out"] for row in rows] == ["2", "0"]
    assert not any("left_out" in row or None in row for row in rows)


@given(st.lists(st.floats(allow_nan=False, allow_infinity=False), min_size=1, max_size=5))
@settings(max_examples=20, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_numbers_come_back_exactly(folder, values):
    for name in ("metrics.jsonl", "metrics.csv", "costs.csv"):
        (folder.path / name).unlink(missing_ok=True)
    for value in values:
        folder.append({"round": 1, "val": {"auc": value}}, {"round": 1, "seconds": value})
    assert [row["val"]["auc"] for row in folder.records()] == values
    assert [row["seconds"] for row in folder.costs()] == values


@pytest.mark.parametrize(
    ("name", "text"),
    [("metrics.jsonl", '{"round": 1}\n{"rou'), ("costs.csv", "a,b\n1\n"), ("costs.csv", "a,b\n1,x\n")],
)
def test_damaged_records_are_named(folder, name, text):
    (folder.path / name).write_text(text)
    with pytest.raises(RunError) as caught:
        folder.records() if name == "metrics.jsonl" else folder.costs()
    assert one_line(caught).startswith(str(folder.path / name))


# Writing


def full_disk(file) -> None:
    file.write(b"half of it")
    raise OSError(errno.ENOSPC, "No space left on device")


def test_a_failed_write_leaves_the_previous_file_and_nothing_else(tmp_path):
    path = tmp_path / "state"
    write_atomically(path, lambda file: file.write(b"good"))
    with pytest.raises(RunError) as caught:
        write_atomically(path, full_disk)
    assert one_line(caught) == f"{path}: cannot be written: No space left on device; the previous version stands"
    assert path.read_bytes() == b"good" and [p.name for p in tmp_path.iterdir()] == ["state"]


@pytest.mark.parametrize("interruption", [KeyboardInterrupt, ValueError])
def test_an_interrupted_write_leaves_the_previous_file_and_nothing_else(tmp_path, interruption):
    def write(file) -> None:
        file.write(b"half of it")
        raise interruption

    path = tmp_path / "state"
    write_atomically(path, lambda file: file.write(b"good"))
    with pytest.raises(interruption):
        write_atomically(path, write)
    assert path.read_bytes() == b"good" and [p.name for p in tmp_path.iterdir()] == ["state"]


def test_a_disk_that_fills_up_while_flushing_leaves_the_previous_file(tmp_path, monkeypatch):
    path = tmp_path / "state"
    write_atomically(path, lambda file: file.write(b"good"))

    def fail(descriptor: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(orchestrator.coordinator.run_folder.os, "fsync", fail)
    with pytest.raises(RunError, match="No space left"):
        write_atomically(path, lambda file: file.write(b"new"))
    assert path.read_bytes() == b"good" and [p.name for p in tmp_path.iterdir()] == ["state"]


def test_a_file_in_a_missing_folder_is_refused(tmp_path):
    with pytest.raises(RunError, match="No such file"):
        write_atomically(tmp_path / "none" / "state", lambda file: None)


needs_dev_full = pytest.mark.skipif(not Path("/dev/full").exists(), reason="no /dev/full on this system")


@needs_dev_full
@pytest.mark.parametrize("name", ["metrics.jsonl", "metrics.csv", "costs.csv"])
def test_a_full_disk_while_appending_is_one_line(folder, name):
    put(folder, 1)
    (folder.path / name).unlink()
    (folder.path / name).symlink_to("/dev/full")
    with pytest.raises(RunError) as caught:
        folder.append(record(2), costs(2))
    assert one_line(caught) == (
        f"{folder.path / name}: cannot be written: No space left on device; the last checkpoint stands"
    )
    assert read_arrays(folder.state_dir / "state.npz")["round"] == 1


def test_a_full_disk_while_saving_keeps_the_last_checkpoint(folder, monkeypatch):
    put(folder, 2)
    before = sorted(path.name for path in folder.state_dir.iterdir())
    monkeypatch.setattr(orchestrator.coordinator.run_folder.np, "savez", lambda file, **arrays: full_disk(file))
    with pytest.raises(RunError, match="No space left"):
        folder.save(Checkpoint(3, np.zeros(5), {}))
    assert sorted(path.name for path in folder.state_dir.iterdir()) == before
    checkpoint = folder.load()
    assert checkpoint.round == 2 and all(path.exists() for path in checkpoint.states.values())


# Checkpoints


def test_a_checkpoint_comes_back(folder):
    put(folder, 3)
    again = RunFolder(folder.path).load()
    assert again.round == 3
    assert again.parameters.dtype == np.float64
    np.testing.assert_array_equal(again.parameters, np.arange(5) / 7 + 3)
    assert again.states == {k: folder.state_dir / f"client-{k}-round-{k}.npz" for k in (1, 2, 3)}


def test_what_clients_said_comes_back(folder):
    """Of each client its confusion tables and whatever further figures there are, in any order of clients."""
    rng = np.random.default_rng(0)
    said = {
        c: {"val": rng.integers(0, 9, (3, 3)), "test": np.zeros((3, 3), np.int64), "mask_sparsity": c / 7}
        for c in (11, 2, 5)
    }
    folder.save(Checkpoint(1, np.zeros(5), {}, evaluations=said))
    folder.append(record(1), costs(1))
    again = RunFolder(folder.path).load().evaluations
    assert list(again) == [2, 5, 11]
    for c, answer in said.items():
        assert list(again[c]) == list(answer)
        for name, value in answer.items():
            np.testing.assert_array_equal(again[c][name], value)
        assert again[c]["val"].dtype == np.int64 and again[c]["val"].shape == (3, 3)
    assert folder.load().states == {} and folder.load().clip_norm is None
    folder.save(Checkpoint(1, np.zeros(5), {}, 0.25, {}))
    assert folder.load().evaluations == {} and folder.load().clip_norm == 0.25


def test_saving_removes_the_files_that_no_longer_count(folder):
    put(folder, 2)
    newer = folder.state_dir / "client-1-round-3.npz"
    newer.write_bytes(b"")
    (folder.state_dir / "state.npz.new").write_bytes(b"left by a crash")
    folder.save(Checkpoint(3, np.zeros(5), {1: newer, 2: folder.state_dir / "client-2-round-2.npz"}))
    kept = {"state.npz", "client-1-round-3.npz", "client-2-round-2.npz"}
    assert {path.name for path in folder.state_dir.iterdir()} == kept


@pytest.mark.parametrize("name", [".ipynb_checkpoints", "notes.txt", ".nfs000012", "client-1-round-1.npz.bak"])
def test_saving_leaves_what_is_not_its_own(folder, name):
    """Notebooks, editors and network file systems put files and folders into the one of the checkpoint."""
    path = folder.state_dir / name
    path.mkdir() if name.startswith(".ipynb") else path.write_text("mine")
    put(folder, 2)
    assert path.exists() and folder.load().round == 2


def test_a_round_without_checkpoint_is_dropped(folder):
    put(folder, 2)
    before = lines(folder)
    folder.append(record(3), costs(3))
    assert folder.load().round == 2
    assert lines(folder) == before
    folder.append(record(3), costs(3))
    assert [row["round"] for row in folder.records()] == [1, 2, 3] == [row["round"] for row in folder.costs()]


@given(st.data())
@settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_a_crash_anywhere_while_appending_costs_that_round_only(folder, data):
    rounds = data.draw(st.integers(0, 2), "completed rounds")
    for path in [*folder.path.glob("*.csv"), *folder.path.glob("*.jsonl"), *folder.state_dir.iterdir()]:
        path.unlink()
    put(folder, rounds)
    before = lines(folder)
    folder.append(record(rounds + 1), costs(rounds + 1))
    crashed = False  # the files are written in this order; the crash is somewhere on the way
    for name, text in {name: (folder.path / name).read_text() for name in lines(folder)}.items():
        old = "".join(line + "\n" for line in before.get(name, ()))
        written = 0 if crashed else data.draw(st.integers(0, len(text) - len(old)), f"characters of {name}")
        crashed = crashed or written < len(text) - len(old)
        (folder.path / name).write_text(text[: len(old) + written])
    for _ in range(2):  # loading again changes nothing
        checkpoint = folder.load()
        assert (checkpoint.round if checkpoint else 0) == rounds
        assert {name: kept for name, kept in lines(folder).items() if kept} == before
    folder.append(record(rounds + 1), costs(rounds + 1))
    assert [row["round"] for row in folder.records()] == [*range(1, rounds + 2)]
    assert [row["round"] for row in folder.costs()] == [*range(1, rounds + 2)]
    assert len(lines(folder)["metrics.csv"]) == rounds + 2


@pytest.mark.parametrize("name", ["metrics.jsonl", "metrics.csv", "costs.csv"])
@pytest.mark.parametrize("damage", ["line", "end of line", "file"])
def test_records_shorter_than_the_checkpoint_are_refused(folder, name, damage):
    put(folder, 2)
    path = folder.path / name
    text = path.read_text()
    if damage == "file":
        path.unlink()
    else:
        path.write_text(text[:-1] if damage == "end of line" else "".join(text.splitlines(keepends=True)[:-1]))
    with pytest.raises(RunError) as caught:
        folder.load()
    assert one_line(caught).startswith(f"{path}: holds fewer rounds than the checkpoint (2)")


@pytest.fixture(scope="module")
def saved(tiny, tmp_path_factory):
    folder = RunFolder.create(tiny(tmp_path_factory.mktemp("saved")), "run")
    put(folder, 2)
    return folder, (folder.state_dir / "state.npz").read_bytes()


@given(st.data())
@settings(max_examples=150)
def test_a_damaged_checkpoint_is_an_error_of_one_line_or_harmless(saved, data):
    folder, content = saved
    path = folder.state_dir / "state.npz"
    damaged = bytearray(content[: data.draw(st.integers(0, len(content)), "length")])
    if damaged and data.draw(st.booleans(), "flip"):
        damaged[data.draw(st.integers(0, len(damaged) - 1), "position")] ^= data.draw(st.integers(1, 255), "bits")
    path.write_bytes(damaged)
    try:
        checkpoint = folder.load()
    except RunError as error:
        assert str(path) in str(error) and "\n" not in str(error)
    else:  # some bytes of a zip archive mean nothing, e.g. the time of day
        assert checkpoint.round == 2
        np.testing.assert_array_equal(checkpoint.parameters, np.arange(5) / 7 + 2)


@pytest.mark.parametrize("cut", [0, 1, 10, 200, -1])
def test_a_checkpoint_cut_short_is_refused(saved, cut):
    folder, content = saved
    (folder.state_dir / "state.npz").write_bytes(content[:cut])
    with pytest.raises(RunError, match=r"state\.npz: cannot be read, it is missing or damaged"):
        folder.load()


@pytest.mark.parametrize("arrays", [{"round": np.array(1)}, {"parameters": np.zeros(3)}, {"client/x": np.array("a")}])
def test_an_archive_of_something_else_is_no_checkpoint(saved, arrays):
    folder, _ = saved
    with open(folder.state_dir / "state.npz", "wb") as file:
        np.savez(file, **arrays)
    with pytest.raises(RunError) as caught:
        folder.load()
    assert "is no checkpoint of this program" in one_line(caught)


def test_a_pickle_in_an_archive_is_not_run(tmp_path):
    with open(tmp_path / "x.npz", "wb") as file:
        np.savez(file, x=np.array([print], dtype=object))
    with pytest.raises(RunError, match="cannot be read"):
        read_arrays(tmp_path / "x.npz")
