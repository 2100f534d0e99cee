"""Seeds: reproducible everywhere, separate for each purpose."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.seeding import derived_seed, seeded_generator

purposes = st.lists(st.one_of(st.integers(0, 1000), st.text("abcdefgh ", min_size=1)), max_size=4)


def test_the_seeds_are_those_of_every_other_machine():
    assert derived_seed(31, "cohort", 1) == 7797253387804400357
    assert seeded_generator(31, "cohort", 1).integers(1000, size=5).tolist() == [558, 345, 336, 517, 524]


@given(st.integers(0, 2**70), purposes)
def test_a_seed_has_63_bits_and_does_not_change(seed, purpose):
    assert 0 <= derived_seed(seed, *purpose) < 2**63
    assert derived_seed(seed, *purpose) == derived_seed(seed, *purpose)


@given(st.integers(0, 2**64), purposes, purposes)
def test_another_purpose_or_run_gives_another_seed(seed, one, other):
    assert (derived_seed(seed, *one) == derived_seed(seed, *other)) == (list(map(str, one)) == list(map(str, other)))
    assert derived_seed(seed, *one) != derived_seed(seed + 1, *one)


def test_generators_of_one_purpose_are_equal_and_independent_of_each_other():
    first, second = seeded_generator(5, "x"), seeded_generator(5, "x")
    drawn = first.random(10)
    seeded_generator(5, "y").random(3)
    np.testing.assert_array_equal(drawn, second.random(10))


def test_the_global_generator_of_numpy_is_not_touched():
    np.random.seed(1)
    before = np.random.get_state()[1].copy()
    seeded_generator(5, "x").random(10)
    np.testing.assert_array_equal(np.random.get_state()[1], before)
