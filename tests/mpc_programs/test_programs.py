"""Every layer knows the same programs, and rounds take what theirs demand."""

from __future__ import annotations

from importlib import resources

import numpy as np
import pytest

from mpc_programs.programs import PROGRAMS
from mpc_programs.rules import RoundParameters
from orchestrator.mpc.offline.correlations import Tally
from orchestrator.mpspdz.programs import ROUNDS
from orchestrator.server.aggregation import SUMS, demand
from orchestrator.wire.update import CARRIERS
from tests.server.test_aggregation import FORMAT, make_uploads, round_on_shares


@pytest.mark.parametrize("table", [CARRIERS, SUMS, ROUNDS], ids=["wire", "server", "mpspdz"])
def test_every_layer_has_an_object_for_each(table):
    assert list(table) == list(PROGRAMS)


@pytest.mark.parametrize("name", PROGRAMS)
def test_each_has_a_file_for_mpspdz(name):
    assert resources.files("mpc_programs").joinpath(f"{name}.mpc").is_file()


@pytest.mark.parametrize("name", PROGRAMS)
@pytest.mark.parametrize("clip_norm", [None, 0.5])
def test_a_round_takes_from_preprocessing_what_is_demanded(name, clip_norm):
    d, rule = 7, RoundParameters("f2gnn", 3, ratio_max=None if clip_norm is None else FORMAT.limit / clip_norm)
    sources = [Tally(), Tally()]
    round_on_shares(rule, np.zeros(d), make_uploads(3, d, seed=1), clip_norm, sources=sources, program=name)
    assert [source.taken for source in sources] == [demand(rule, d, name)] * 2
