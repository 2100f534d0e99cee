"""The wire format against vectors of its version: what was read must stay read, what was refused refused."""

import json
from pathlib import Path

import numpy as np
import pytest

from orchestrator.mpc.fixed_point import decode_scalars
from orchestrator.mpc.offline.correlations import Batch, Demand
from orchestrator.mpc.ring import signed128
from orchestrator.wire.message import Header
from orchestrator.wire.update import Correlated
from orchestrator.wire.upload import Layout, unpack_upload
from tests.support import add128, check_bit_triples, check_random_bits, check_triples

VECTORS = json.loads((Path(__file__).parent.parent / "vectors" / "wire-3.json").read_text())
D, K = len(VECTORS["update"]), len(VECTORS["scores"])


def header(server):
    return Header(bytes(range(16)), 7, 1, 12, server)


@pytest.mark.parametrize("case", VECTORS["uploads"], ids=lambda case: case["program"])
def test_uploads_are_read(case):
    layout = Layout(case["program"], D, K)
    first, second = (unpack_upload(bytes.fromhex(case["packed"][k]), header(k), layout) for k in (0, 1))
    assert first.digest.hex() == second.digest.hex() == case["digest"]
    assert list(decode_scalars(add128(first.scalars, second.scalars))) == VECTORS["scores"]
    if isinstance(first.update, Correlated):
        found = (first.update.share + second.update.share).view(np.int64)
    elif case["program"] == "scalar-first":
        found = (first.update + second.update).view(np.int64)
    else:
        found = signed128(add128(first.update, second.update))
    assert list(found) == VECTORS["update"]


@pytest.mark.parametrize("case", VECTORS["refused"], ids=lambda case: case["name"])
def test_bad_uploads_are_refused(case):
    with pytest.raises(ValueError, match=case["reason"]):
        unpack_upload(bytes.fromhex(case["packed"]), header(1), Layout("assisted", D, K))


def test_a_dealt_batch_is_read():
    demand = Demand(*VECTORS["batch"]["demand"])
    first, second = (
        Batch.from_dealer(demand, k, bytes.fromhex(message)) for k, message in enumerate(VECTORS["batch"]["messages"])
    )
    check_triples(first.triples(2), second.triples(2))
    check_bit_triples(first.bit_triples(9), second.bit_triples(9))
    check_random_bits(first.bits(3), second.bits(3))
