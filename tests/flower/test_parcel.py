"""Bytes in Flower's messages."""

from __future__ import annotations

import pytest

pytest.importorskip("flwr", reason="needs safegnn[flower]")

from flwr.app import ArrayRecord, ConfigRecord, RecordDict

from orchestrator.errors import PeerLostError, PeerTimeoutError
from orchestrator.flower import parcel
from orchestrator.flower.parcel import failure, packed, raised, unpacked


@pytest.mark.parametrize("length", [0, 1, 7, 8, 9, 16, 100])
def test_parts_are_put_together_in_order(monkeypatch, length):
    monkeypatch.setattr(parcel, "PART_BYTES", 8)
    content = bytes(range(length))

    assert unpacked(packed(content)) == content
    assert len(packed(content)) == max(1, -(-length // 8))


def test_order_is_of_names_and_not_of_arrival(monkeypatch):
    monkeypatch.setattr(parcel, "PART_BYTES", 1)
    records = packed(bytes(range(12)))

    assert unpacked(RecordDict(dict(reversed(records.items())))) == bytes(range(12))


@pytest.mark.parametrize(
    "records",
    [
        RecordDict(),
        RecordDict({"part 1": ConfigRecord({"bytes": b"x"})}),
        RecordDict({"part 0": ConfigRecord({"bytes": "text"})}),
        RecordDict({"part 0": ConfigRecord({"bytes": b"x", "more": b"y"})}),
        RecordDict({"part 0": ConfigRecord({"bytes": b"x"}), "beside": ConfigRecord({"bytes": b"y"})}),
        RecordDict({"part 0": ArrayRecord()}),
        RecordDict({"part 0": ConfigRecord({"bytes": b"123456789"})}),
    ],
)
def test_another_shape_is_refused(monkeypatch, records):
    monkeypatch.setattr(parcel, "PART_BYTES", 8)

    with pytest.raises(ValueError, match=r"part|empty"):
        unpacked(records)


def test_nothing_longer_than_the_limit_is_packed_or_unpacked(monkeypatch):
    records = packed(b"123456789")
    monkeypatch.setattr(parcel, "LONGEST", 8)

    for attempt in (lambda: packed(b"123456789"), lambda: unpacked(records)):
        with pytest.raises(ValueError, match="8"):
            attempt()


def test_a_failure_names_its_site_and_kind():
    silent, gone = raised(failure("silent", "no reply"), "a"), raised(failure("lost", "no socket"), "b")

    assert isinstance(silent, PeerTimeoutError)
    assert isinstance(gone, PeerLostError)
    assert (silent.peer, gone.peer, gone.reason) == ("site a", "site b", "no socket")
    assert raised(packed(b"x"), "a") is None


def test_a_failure_is_one_short_line_whatever_a_node_says():
    said = raised(RecordDict({"failed": ConfigRecord({"kind": "odd", "reason": "a\nb\x1b[31m" + "c" * 1000})}), "a")

    assert isinstance(said, PeerLostError)
    assert "\n" not in str(said)
    assert "\x1b" not in str(said)
    assert len(said.reason) <= 200
