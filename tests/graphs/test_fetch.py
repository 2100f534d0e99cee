"""Fetching without a network: an injected download, checksums, and every way to fail."""

from __future__ import annotations

import stat
from pathlib import Path

import pooch
import pytest

from orchestrator.errors import BusyError, DataError
from orchestrator.graphs.fetch import SOURCES, Source, default_folder, fetch_data, git_blob_id
from orchestrator.graphs.formats import FAIR_FILES
from orchestrator.locks import FolderLock

# What `git hash-object` prints for these contents.
CONTENTS = {
    "a.csv": (b"what is up, doc?", "bd9dbf5aae1a3862dd1526723246b20206e5fc37"),
    "b.txt": (b"", "e69de29bb2d1d6434b8b29ae775ad8c2e48c5391"),
}


@pytest.fixture
def source(monkeypatch):
    files = {name: blob for name, (_, blob) in CONTENTS.items()}
    source = Source("owner/name", "0" * 40, "data/x", files)
    monkeypatch.setattr("orchestrator.graphs.fetch.SOURCES", {"x": source})
    return source


def _serve(url: str, target: Path) -> None:
    target.write_bytes(CONTENTS[url.rpartition("/")[2]][0])


def names(folder: Path) -> list[str]:
    """What there is but for the file of the lock, which stays."""
    return sorted(path.name for path in folder.iterdir() if path.name != ".lock")


def _offline(url: str, target: Path) -> None:
    raise ConnectionError("name resolution failed\nfor raw.githubusercontent.com")


@pytest.mark.parametrize("file", CONTENTS)
def test_git_blob_id(tmp_path, file):
    content, blob = CONTENTS[file]
    (tmp_path / file).write_bytes(content)
    assert git_blob_id(tmp_path / file) == blob


def test_downloads_what_is_missing_from_the_pinned_commit(tmp_path, source):
    asked = []

    def download(url: str, target: Path) -> None:
        asked.append(url)
        _serve(url, target)

    folder = tmp_path / "deep" / "x"
    assert fetch_data("x", folder, download) == folder
    assert names(folder) == ["a.csv", "b.txt"]
    prefix = f"https://raw.githubusercontent.com/owner/name/{'0' * 40}/data/x/"
    assert asked == [prefix + "a.csv", prefix + "b.txt"]
    assert fetch_data("x", folder, _offline) == folder  # nothing is missing, so nothing is asked for


def test_a_checksum_mismatch_leaves_nothing_behind(tmp_path, source):
    with pytest.raises(DataError, match=r"a\.csv: what arrived is not data/x/a\.csv of github\.com/owner/name"):
        fetch_data("x", tmp_path, lambda url, target: target.write_bytes(b"an error page"))
    assert names(tmp_path) == []


def test_an_altered_file_is_not_overwritten(tmp_path, source):
    (tmp_path / "a.csv").write_bytes(b"mine")
    with pytest.raises(DataError, match=r"a\.csv: differs from .*; remove it and fetch again"):
        fetch_data("x", tmp_path, _serve)
    assert (tmp_path / "a.csv").read_bytes() == b"mine"


def test_without_a_network_one_line_says_what_to_do(tmp_path, source):
    with pytest.raises(DataError, match=r"put data/x/a\.csv of github\.com/owner/name at commit 0{40} into ") as caught:
        fetch_data("x", tmp_path, _offline)
    assert str(tmp_path) in str(caught.value)
    assert "\n" not in str(caught.value)
    assert names(tmp_path) == []


def test_the_default_download_reports_an_unreachable_host(tmp_path, source, monkeypatch):
    monkeypatch.setattr(Source, "url", lambda self, file: f"http://127.0.0.1:1/{file}")
    with pytest.raises(DataError, match="cannot download; put data/x/a"):
        fetch_data("x", tmp_path)


def test_a_folder_that_cannot_be_made(tmp_path, source):
    (tmp_path / "file").touch()
    with pytest.raises(DataError, match="cannot be created: Not a directory"):
        fetch_data("x", tmp_path / "file" / "x", _serve)


def test_an_unknown_name():
    with pytest.raises(DataError, match=r"no data set 'arxiv' can be fetched; there are: nba, german, pokec-z, .*"):
        fetch_data("arxiv")


def test_the_default_folder_is_the_users_cache():
    assert default_folder("nba") == Path(pooch.os_cache("safegnn")) / "nba"


def test_sources_are_pinned_and_are_what_the_readers_read():
    for name, source in SOURCES.items():
        assert len(source.commit) == 40
        assert all(len(blob) == 40 for blob in source.files.values())
        if name in FAIR_FILES:
            assert set(source.files) == {FAIR_FILES[name].nodes, FAIR_FILES[name].edges}


@pytest.mark.parametrize("name", ["nba", "german", "cora", "citeseer", "pubmed"])
def test_the_pins_are_those_of_the_real_files(real_data, planetoid, name):
    folder = real_data(name) if name in ("nba", "german") else planetoid(name)
    assert {file: git_blob_id(folder / file) for file in SOURCES[name].files} == SOURCES[name].files


def test_two_do_not_fetch_into_one_folder_and_a_whole_one_is_not_locked(tmp_path, source):
    def download(url: str, target: Path) -> None:
        with pytest.raises(BusyError, match=f"{tmp_path}: process .* is writing to it"):
            fetch_data("x", tmp_path, _serve)
        _serve(url, target)

    fetch_data("x", tmp_path, download)
    with FolderLock(tmp_path):
        assert fetch_data("x", tmp_path, _offline) == tmp_path
    assert stat.S_IMODE((tmp_path / ".lock").stat().st_mode) == 0o666  # whoever shares the folder may fetch next
