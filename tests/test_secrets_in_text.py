"""No text about an object shows a share, an update, a mask or a key: neither `repr` nor `str`."""

from __future__ import annotations

import importlib
import pkgutil
from dataclasses import fields, is_dataclass
from inspect import isabstract

import numpy as np
import pytest

import orchestrator
from orchestrator.methods.base import LocalUpdate
from orchestrator.mpc.offline.correlations import Batch, Demand, deal
from orchestrator.mpc.offline.oblivious_transfer import BASE_TRANSFERS, OtExtension
from orchestrator.mpc.prg import Prg
from orchestrator.mpc.shares import BitShare, ScalarShare, VectorShare
from orchestrator.server.pool import Pool, Prepared
from orchestrator.wire.envelope import Keypair
from orchestrator.wire.update import Correlated
from orchestrator.wire.upload import Upload

ALL = None
PUBLIC = {
    "aggregator._Session": ALL,  # its number, and where connections wait
    "aggregator._Meeting": ALL,  # of a service, which shows no field of its own
    "aggregator.Agreed": ALL,
    "site.Announce": {"round"},
    "site.Train": {"round", "slot", "cohort", "clip_norm"},
    "site.Contribute": {"round", "slot", "cohort"},
    "site.HearTotal": {"name"},
    "site.Deliver": {"round", "slot"},
    "site.Evaluate": {"round", "own"},
    "site.Welcome": ALL,
    "site.Refused": ALL,
    "site.Failed": ALL,
    "Account": ALL,
    "Aggregate": ALL,
    "Aggregation": {"parameters", "cost", "within", "left_out"},
    "Announce": ALL,
    "Announcement": ALL,
    "Answers": {"step"},
    "Ask": ALL,
    "Assignment": ALL,
    "AuditEncoder": ALL,
    "BitShare": {"count", "owner"},
    "Checkpoint": {"round", "parameters", "states", "clip_norm"},
    "Compiled": ALL,
    "Contribute": {"round", "places", "summand", "bound", "length", "encoder"},
    "Correlated": set(),
    "Deliver": {"round", "decoder", "reveal"},
    "Demand": ALL,
    "Entry": {"budget", "session", "round", "done"},
    "Evaluate": ALL,
    "Header": ALL,
    "Hear": {"step"},
    "HearTotal": {"name"},
    "Inputs": {"network"},
    "Identity": ALL,  # of contexts, which show no key
    "Installation": ALL,
    "Layout": ALL,
    "LocalUpdate": set(),
    "MaskedSum": ALL,  # what is released, and its cost
    "Noise": ALL,
    "NoisyEncoder": ALL,
    "Offer": ALL,
    "OpeningDecoder": ALL,
    "Operation": ALL,
    "Member": ALL,
    "Met": ALL,  # public keys, and channels
    "Party": ALL,
    "PartyCost": ALL,
    "PinnedIdentity": ALL,  # as Identity
    "Place": ALL,
    "Position": ALL,
    "Prepare": ALL,
    "Prepared": {"seconds", "bytes"},
    "Checks": ALL,  # of a round: seconds, bytes, exchanges
    "Present": {"parameters", "clients"},
    "Propose": ALL,
    "Protocol": ALL,  # of MP-SPDZ: how many parties, and options
    "Restore": ALL,
    "Reveal": ALL,
    "Roster": ALL,
    "RoundCost": ALL,
    "RoundPlan": ALL,
    "RoundResult": ALL,
    "Save": ALL,
    "ScalarShare": {"scale_bits", "owner"},
    "RunTerms": ALL,
    "SealingEncoder": ALL,
    "Settle": ALL,
    "Setup": ALL,
    "Shape": ALL,
    "SimulatingEncoder": ALL,
    "Statistic": ALL,  # its name
    "Submit": ALL,
    "TablesOf": {"layout", "own", "name"},
    "Terms": ALL,
    "Total": {"cost", "left_out"},
    "Train": ALL,
    "Trained": {"missing", "seconds"},
    "Upload": set(),
    "VectorFormat": ALL,
    "VectorShare": {"scale_bits", "owner"},
    "_Child": ALL,
    "_Order": ALL,  # of the coordinator to MP-SPDZ's dealer: files and sizes
}
"""The fields that may be shown. A class that is not listed may show none, so whoever adds one must decide."""


class Secret:
    """Stands for a value of any type."""

    def __repr__(self):
        return "SECRET"


def dataclasses():
    """Of all packages that handle secrets, and what a method hands to an engine."""
    found = {LocalUpdate}
    for info in pkgutil.walk_packages(orchestrator.__path__, "orchestrator."):
        if info.name.split(".")[1] not in (
            "aggregator",
            "agreement",
            "client",
            "coordinator",
            "mpc",
            "mpspdz",
            "server",
            "site",
            "transport",
            "wire",
        ):
            continue
        module = importlib.import_module(info.name)
        own = [value for value in vars(module).values() if getattr(value, "__module__", "") == info.name]
        found |= {value for value in own if is_dataclass(value) and not isabstract(value)}
    return sorted(found, key=listed_as)


def listed_as(kind):
    """The name in the list; with that of its folder where another one has a class of the same name."""
    folder = kind.__module__.split(".")[1]
    return f"{folder}.{kind.__name__}" if folder in ("aggregator", "site") else kind.__name__


@pytest.mark.parametrize("kind", dataclasses(), ids=listed_as)
def test_what_is_not_public_is_not_shown(kind):
    names = {field.name for field in fields(kind)}
    public = PUBLIC.get(listed_as(kind), set())
    public = names if public is ALL else public
    assert public <= names
    made = object.__new__(kind)
    for name in names:
        object.__setattr__(made, name, "public" if name in public else Secret())
    assert kind.__name__ in repr(made)
    for text in (repr(made), str(made), f"{[made]}"):
        assert "SECRET" not in text


def test_the_list_names_no_class_that_is_gone():
    assert PUBLIC.keys() <= {listed_as(kind) for kind in dataclasses()}


VALUE = 0x1234567
ARRAY = np.full(3, VALUE, np.uint64)
CORRELATED = Correlated(ARRAY, ARRAY, ARRAY)


@pytest.mark.parametrize(
    ("made", "shown"),
    [
        (ScalarShare([VALUE] * 3, 32, 1), "ScalarShare(scale_bits=32, owner=1)"),
        (BitShare(VALUE, 30, 0), "BitShare(count=30, owner=0)"),
        (VectorShare(ARRAY, 25, 0), "VectorShare(scale_bits=25, owner=0)"),
        (CORRELATED, "Correlated()"),
        (Upload([VALUE], CORRELATED), "Upload()"),
        (LocalUpdate(ARRAY, VALUE, {"balance": VALUE}), "LocalUpdate()"),
    ],
    ids=lambda value: type(value).__name__,
)
def test_what_a_text_still_says(made, shown):
    assert repr(made) == str(made) == shown


def test_objects_that_hold_secrets_in_another_way_show_only_their_type():
    seed = bytes(range(16))
    demand = Demand(1, 1, 1)
    batch = Batch.from_dealer(demand, 0, deal(demand)[0])
    extension = OtExtension(np.ones(BASE_TRANSFERS, np.uint8), [seed], [(seed, seed)])
    for made in (Prg(seed), Keypair(), batch, extension, Pool(lambda key: key, "test")):
        assert type(made).__repr__ is object.__repr__
    assert repr(Prepared(batch, 1.5, 20)) == "Prepared(seconds=1.5, bytes=20)"
