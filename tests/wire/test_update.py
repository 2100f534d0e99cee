"""Both parts of an update together are the update, whatever the program, and hold what they say they hold."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mpc_programs.programs import PROGRAMS
from orchestrator.mpc.prg import Prg
from orchestrator.wire.update import CARRIERS

BYTES = {"assisted": lambda n: 8 * (n + 1), "scalar-first": lambda n: 8, "faithful": lambda n: 16}
"""Of an element, in all fields."""


def both(program, update, n, seeds):
    """Each server's part, expanded from its seed and what was sent to it; and the fields."""
    carrier, d = CARRIERS[program], len(update)
    fields = carrier.split(update, n, *map(Prg, seeds))
    assert {name: len(value) for name, value in fields.items()} == carrier.fields(d, n)
    return [carrier.expand([{}, fields][k], d, n, Prg(seeds[k]), k == 0) for k in range(2)], fields


elements = st.lists(st.integers(-(2**40), 2**40), min_size=1, max_size=5)
seeds = st.tuples(*[st.binary(min_size=16, max_size=16)] * 2).filter(lambda pair: pair[0] != pair[1])


@pytest.mark.parametrize("program", PROGRAMS)
@given(values=elements, seeds=seeds)
def test_parts_add_up_to_the_update(program, values, seeds):
    update = np.array(values).astype(np.uint64)
    (first, second), fields = both(program, update, 1, seeds)
    if program == "assisted":
        total = first.share + second.share
    elif program == "scalar-first":
        total = first + second
    else:
        total = np.array([(a + b) % 2**64 for a, b in zip(first, second, strict=True)], np.uint64)
    np.testing.assert_array_equal(total, update)
    assert sum(map(len, fields.values())) == BYTES[program](1) * len(update)


@given(values=elements, seeds=seeds, n=st.integers(1, 4))
def test_the_correlation_is_one_product_for_each_factor(values, seeds, n):
    update = np.array(values).astype(np.uint64)
    (first, second), fields = both("assisted", update, n, seeds)
    factor_masks = first.factor_masks + second.factor_masks
    np.testing.assert_array_equal(first.products + second.products, factor_masks[:, None] * update)
    assert sum(map(len, fields.values())) == BYTES["assisted"](n) * len(update)
