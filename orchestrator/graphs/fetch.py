"""Public data sets from pinned commits of public repositories. They are downloaded, never shipped.

A file is accepted only if it is the very blob of its commit: git names a blob by SHA-1 of ``blob <size>\\0`` and the
content, so the listing of the commit is the checksum list. Nothing unverified is ever left under its final name.
"""

from __future__ import annotations

import hashlib
import os
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import pooch

from orchestrator.errors import DataError
from orchestrator.locks import FolderLock

__all__ = ["SOURCES", "Source", "default_folder", "fetch_data", "git_blob_id"]


@dataclass(frozen=True)
class Source:
    """Where a data set comes from.

    Attributes:
        repository: ``owner/name`` on GitHub.
        commit: 40 hexadecimal digits.
        folder: where in the repository the files lie.
        files: git blob id of each file.
    """

    repository: str
    commit: str
    folder: str
    files: Mapping[str, str]

    def url(self, file: str) -> str:
        return f"https://raw.githubusercontent.com/{self.repository}/{self.commit}/{self.folder}/{file}"

    def check(self, path: Path) -> None:
        """Refuse a file that is not the pinned one of its name.

        Raises:
            DataError: it differs, or cannot be read.
        """
        try:
            differs = git_blob_id(path) != self.files[path.name]
        except OSError as error:
            raise DataError(f"{path}: cannot be read: {error}") from None
        if differs:
            raise DataError(f"{path}: differs from {self.origin(path.name)}; remove it and fetch again")

    def origin(self, file: str) -> str:
        """What messages call the pinned file."""
        return f"{self.folder}/{file} of github.com/{self.repository} at commit {self.commit}"


_FAIRGNN = ("EnyanDai/FairGNN", "13cdca7627d7779a2396299cdc8edd3a790db7cc", "dataset/pokec")
_PLANETOID = ("kimiyoung/planetoid", "af6abf468a772cc055bec88c52e4d6f51b7c37e3", "data")

SOURCES: Mapping[str, Source] = {
    "nba": Source(
        "nancui0000/F2GNN",
        "e9f888b03e62148e6734b6161fbdb173c729d1e5",
        "dataset/NBA",
        {
            "nba.csv": "81cbb6eca011f472b7f408a1f96b43b4ce825fe5",
            "nba_relationship.txt": "cdd10b20ac12f9a3eec421c4a5c0109310d8fe95",
        },
    ),
    "german": Source(
        "chirag126/nifty",
        "6c270c5ec736c5138d455609112cf6dfcc63dcca",
        "dataset/german",
        {
            "german.csv": "febc8f18bb8bace8203648dc8cf6e6598d926c89",
            "german_edges.txt": "3510911bdca0225647eeee212159eb23c3b9e374",
        },
    ),
    "pokec-z": Source(
        *_FAIRGNN,
        {
            "region_job.csv": "c50552a998e224f9ee214fff80c249fb5cf40bf9",
            "region_job_relationship.txt": "0b346e3a3d8f42b4eb489984cbc178f3988b0eeb",
        },
    ),
    "pokec-n": Source(
        *_FAIRGNN,
        {
            "region_job_2.csv": "7f836f487358af4f0cbbb2b1204e41810a45cc74",
            "region_job_2_relationship.txt": "d0a0833805331cffb09a03820e70066990f15c10",
        },
    ),
    "cora": Source(
        *_PLANETOID,
        {
            "ind.cora.x": "c4a91d008245403e7f26aa616b437191509793c0",
            "ind.cora.tx": "6e856d777401ee15dc8619db76c97d0a40ba2d60",
            "ind.cora.allx": "44d53b1fece343538e45592caac521d73c6f98d6",
            "ind.cora.y": "58e30ef120d3553cfaac33ff28c6b5436dbef661",
            "ind.cora.ty": "da1734ab670b5c8ecee78a9c30b35566df916f4b",
            "ind.cora.ally": "04fbd0b083d09341fcf16b395c642329637f0542",
            "ind.cora.graph": "4d3bf85dfc8b1c105a2c995597a1b3eed6947925",
            "ind.cora.test.index": "ded8092db4cd767a367eebe09003b954a5316f24",
        },
    ),
    "citeseer": Source(
        *_PLANETOID,
        {
            "ind.citeseer.x": "f094104a66f2689ffbd01085fe6a856689e9db9e",
            "ind.citeseer.tx": "b2aff18aa1fc6f4f5e8c64db7643b59b24e42584",
            "ind.citeseer.allx": "592091071ac35b78599c722d0e60b1c655711728",
            "ind.citeseer.y": "e857ac49b611da98e101a068cf4855350274f68a",
            "ind.citeseer.ty": "3795f79df0cd1123f4478b77c148a5fbacc4cefb",
            "ind.citeseer.ally": "7503f81a0b6ac1cc21cb5a97073542a6b1dfe99c",
            "ind.citeseer.graph": "a01dca663d0103c130f525017a4a9c313037e286",
            "ind.citeseer.test.index": "62d9e3d5ed53c66b069125af98529d76c70d9b3e",
        },
    ),
    "pubmed": Source(
        *_PLANETOID,
        {
            "ind.pubmed.x": "16c0eca8d2b3297014ff80327416f9332eda10d7",
            "ind.pubmed.tx": "eee4f3c988fde0da87a9ec7b01ca5e7863c1b1f1",
            "ind.pubmed.allx": "3b86bccf08111c37c632a9dd8ab63db25ea76361",
            "ind.pubmed.y": "e86670576c85340eeb2271b3c918bfa89322b2cf",
            "ind.pubmed.ty": "225a0bb9bb6430e3925d04688daf6a0da964c07a",
            "ind.pubmed.ally": "4c8bcdc80882dd225fe4dd4fafd723baa616ac97",
            "ind.pubmed.graph": "76eb87e628a6b9d43fc31ea42c8c6c8f3e52b404",
            "ind.pubmed.test.index": "41f6befcb7750cc4858cb852f2b349a9598cb2f4",
        },
    ),
}


def default_folder(name: str) -> Path:
    """Where a data set lies unless the user says otherwise: the platform's cache folder for this program."""
    return Path(pooch.os_cache("safegnn")) / name


def git_blob_id(path: Path) -> str:
    """What ``git hash-object`` prints for the file."""
    digest = hashlib.sha1(b"blob %d\0" % path.stat().st_size, usedforsecurity=False)
    with path.open("rb") as stream:
        while chunk := stream.read(1 << 20):
            digest.update(chunk)
    return digest.hexdigest()


def _download(url: str, target: Path) -> None:
    pooch.HTTPDownloader(timeout=30)(url, str(target), None)


def fetch_data(name: str, folder: Path | None = None, download: Callable[[str, Path], None] = _download) -> Path:
    """Make sure that a data set's files are there and are the pinned ones; download what is missing.

    Args:
        name: one of `SOURCES`.
        folder: where to put the files; None: `default_folder`.
        download: writes the content behind a URL to a path; raises OSError or ValueError on failure.

    Returns:
        The folder.

    Raises:
        BusyError: another process fetches into the folder.
        DataError: unknown name, a file cannot be downloaded or written, or differs from the pinned one.
        RunError: the folder cannot be locked, because it cannot be written.
    """
    if name not in SOURCES:
        raise DataError(f"no data set '{name}' can be fetched; there are: {', '.join(SOURCES)}")
    source = SOURCES[name]
    folder = default_folder(name) if folder is None else folder
    missing = []
    for file in source.files:
        if (folder / file).exists():
            source.check(folder / file)
        else:
            missing.append(file)
    if not missing:  # the folder may be one that only somebody else can write
        return folder
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise DataError(f"{folder}: cannot be created: {error.strerror or error}") from error
    with FolderLock(folder, mode=0o666):  # a folder that several users share is locked by any of them
        for file in missing:
            _fetch(source, file, folder, download)
    return folder


def _fetch(source: Source, file: str, folder: Path, download: Callable[[str, Path], None]) -> None:
    target, origin, blob = folder / file, source.origin(file), source.files[file]
    try:
        with tempfile.TemporaryDirectory(dir=folder, prefix=".fetch-") as scratch:
            part = Path(scratch) / file
            download(source.url(file), part)
            if git_blob_id(part) != blob:
                raise DataError(f"{source.url(file)}: what arrived is not {origin} (expected git blob {blob})")
            os.replace(part, target)
    except (OSError, ValueError) as error:
        reason = " ".join(str(error).split())[:200]
        raise DataError(f"{target}: cannot download; put {origin} into {folder} by hand ({reason})") from error
