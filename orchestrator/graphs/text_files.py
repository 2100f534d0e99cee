"""Text on disk as people have it: which encoding, which separator, which header."""

from __future__ import annotations

import codecs
import csv
import io
import re
import warnings
from collections.abc import Collection
from pathlib import Path

import pandas as pd

from orchestrator.errors import DataError
from orchestrator.graphs.faults import DataFaults

__all__ = ["SEPARATORS", "check_header", "decoded", "listed", "read_text_table", "separator_of"]

SEPARATORS = {",": "commas", ";": "semicolons", "\t": "tabs", "|": "bars", " ": "blanks"}
"""What may stand between two cells, and how messages call it."""

_MARKS = (
    (codecs.BOM_UTF32_LE, "utf-32"),  # begins as UTF-16's does
    (codecs.BOM_UTF32_BE, "utf-32"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
)


def listed(items: Collection[object], most: int = 5) -> str:
    """``'a', 'b', ...``"""
    shown = [repr(str(item)) for item in items]
    return ", ".join(shown[:most]) + (", ..." if len(shown) > most else "")


def decoded(path: Path, encoding: str = "utf-8") -> str:
    """The text of a file, without a byte order mark.

    Raises:
        DataError: it cannot be read, or is in another encoding, which is named where it can be told.
    """
    try:
        found = codecs.lookup(encoding)
        codecs.decode(b"", encoding)
        if not getattr(found, "_is_text_encoding", True):
            raise LookupError
    except (LookupError, ValueError, UnicodeError, TypeError):
        raise DataError(f"data.files.encoding: {encoding!r} is no encoding; e.g. utf-8, latin-1, utf-16") from None
    try:
        raw = path.read_bytes()
    except OSError as error:
        raise DataError(f"{path}: cannot be read: {error.strerror or error}") from None
    wide = next((name for mark, name in _MARKS if raw.startswith(mark)), None)
    if wide is None and 4 * raw[:4000].count(0) > len(raw[:4000]):
        wide = "utf-16-le" if raw[1:2] == b"\0" else "utf-16-be"
    is_wide = found.name.startswith(("utf-16", "utf-32"))
    if wide and not is_wide:
        told = f"{path}: is {wide.upper()}, not {encoding}; data.files.encoding: {wide} reads it"
        raise DataFaults((told,), {"encoding": wide})
    try:
        return raw.decode("utf-8-sig" if found.name == "utf-8" else encoding)
    except UnicodeError as error:
        start = error.start if isinstance(error, UnicodeDecodeError) else 0
        number = raw.count(b"\n", 0, start) + 1
        told = f"{path}: line {number} is not {encoding}"
        if found.name != "utf-8":
            raise DataError(told) from None
        # Every text can be read as 8 bits a character, so only a reader can tell which it is.
        line = raw[raw.rfind(b"\n", 0, start) + 1 :].partition(b"\n")[0]
        eight = "cp1252" if any(0x80 <= byte < 0xA0 for byte in line) else "latin-1"
        shown = line.decode(eight, "replace").strip()[:60]
        told += f"; data.files.encoding: {eight} if it should read {shown!r}"
        raise DataFaults((told,), {"encoding": eight}) from None


def separator_of(line: str, candidates: str = ",;\t|") -> str | None:
    """What a line has most of, outside of quotes; None: nothing of these."""
    outside = "".join(line.split('"')[::2])
    best = max(candidates, key=outside.count)
    return best if outside.count(best) else None


def read_text_table(path: Path, text: Collection[str] | None, encoding: str, decimal: str = ".") -> pd.DataFrame:
    """A table with a header, whose cells are separated as the header's are.

    Args:
        text: columns that stay text, so that ids are exact; None: all. Empty cells of them are ``""``; blanks around a
            cell go.

    Raises:
        DataError: unreadable, empty, ragged, a name is missing in the header or stands there twice.
    """
    content = decoded(path, encoding)
    if "\0" in content:
        raise DataError(f"{path}: holds a character of code 0; expected text")
    content, separator = _from_the_header_on(content)
    if not content:
        raise DataError(f"{path}: empty; expected a header and one row a node")
    separator = separator or ("\t" if path.suffix == ".tsv" else ",")
    try:
        names = [name.strip() for name in next(csv.reader(io.StringIO(content), delimiter=separator, strict=True))]
    except csv.Error as error:
        raise DataError(f"{path}: the header cannot be read: {error}") from None
    check_header(names, str(path))
    kept = names if text is None else [name for name in names if name in text]
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error", pd.errors.ParserWarning)  # rows longer than the header
            frame = pd.read_csv(
                io.StringIO(content),
                names=names,
                header=0,
                dtype=dict.fromkeys(kept, object),
                index_col=False,
                keep_default_na=False,  # an id may be the text "NA"; only an empty field is missing
                na_values=[""],
                decimal=decimal,
                low_memory=False,
                sep=separator,
                skipinitialspace=True,
            )
    except pd.errors.ParserWarning:
        raise DataError(
            f"{path}: rows have more fields than the header has columns; R's row names need row.names=FALSE"
        ) from None
    except ValueError as error:  # pandas' ParserError is one
        kind, reason = SEPARATORS[separator][:-1], " ".join(str(error).split())
        raise DataError(f"{path}: cannot be read as a {kind}-separated table: {reason}") from None
    if frame.empty:
        raise DataError(f"{path}: no rows below the header; expected one row a node")
    for column in kept:
        frame[column] = frame[column].fillna("").str.strip().astype(object)
    return frame


def _from_the_header_on(content: str) -> tuple[str, str | None]:
    """The table without what stands above its header, and what separates the header's names.

    Above may stand comments, which have other separators than the header, and Excel's ``sep=;``.
    """
    separator = None
    lines = content.splitlines(keepends=True)
    for number, line in enumerate(lines):
        below = next((later for later in lines[number + 1 :] if later.strip()), "")
        if match := re.fullmatch(r"sep=(.)\s*", line):
            separator = match[1]
        elif line.strip() and not (line[0] in "#%" and separator_of(line) != separator_of(below)):
            return "".join(lines[number:]), separator if separator in SEPARATORS else separator_of(line)
    return "", None


def check_header(names: list[str], where: str) -> None:
    """Raises DataError where a column has no name, or two have the same."""
    unnamed = [place + 1 for place, name in enumerate(names) if not name]
    if unnamed:
        cure = "name it in the header" if len(unnamed) == 1 else "name them in the header"
        if unnamed == [1] and len(names) > 1:
            cure += ", or write the file without row numbers (pandas: index=False, R: row.names=FALSE)"
        columns = ", ".join(map(str, unnamed[:5])) + (", ..." if len(unnamed) > 5 else "")
        raise DataError(f"{where}: column {columns} has no name; {cure}")
    if twice := sorted({name for name in names if names.count(name) > 1}):
        places = " and ".join(str(k + 1) for k, name in enumerate(names) if name == twice[0])
        raise DataError(f"{where}: columns {places} are all called {twice[0]!r}; expected different names")
