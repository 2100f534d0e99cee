"""Rounds that differ from each other have no compiled program."""

from __future__ import annotations

import pytest

from mpc_programs.rules import RoundParameters
from orchestrator.coordinator.mpspdz import MpSpdzEngine
from orchestrator.errors import ConfigError
from orchestrator.mpc.fixed_point import VectorFormat
from tests.support import engine_of


def test_a_cohort_of_another_size_is_refused_by_the_setting(standin):
    engine = engine_of(MpSpdzEngine, RoundParameters("fedavg", 3), VectorFormat(25, 32, 6), home=standin.home)
    with pytest.raises(ConfigError, match=r"federation\.sampling: .* 3 clients, but round 7 has 0") as caught:
        engine.prepare(7, 0)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("parameters", "options", "setting"),
    [
        (RoundParameters("f2gnn", 3, expected=3), {}, r"^privacy\.sensitivity: bounded_weights"),
        (
            RoundParameters("f2gnn", 3, ratio_max=8.0),
            {"clip_norm": 8.0, "count_stddev": 0.0},
            r"^privacy\.clip: quantile",
        ),
    ],
)
def test_what_has_no_program_is_refused_before_anything_starts(standin, parameters, options, setting):
    with pytest.raises(ConfigError, match=setting) as caught:
        engine_of(MpSpdzEngine, parameters, VectorFormat(25, 32, 6), home=standin.home, **options)
    assert "\n" not in str(caught.value)
