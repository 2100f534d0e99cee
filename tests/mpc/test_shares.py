import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.mpc.shares import ScalarShare
from tests.support import reveal, share

NUMBERS = st.lists(st.floats(-1000, 1000), min_size=1, max_size=8)


@given(NUMBERS, st.floats(-1000, 1000))
def test_linear_operations(values, constant):
    x = np.array(values)
    pair = share(x)
    doubled = share(2 * x)
    assert reveal([a + b for a, b in zip(pair, doubled, strict=True)]) == pytest.approx(3 * x, abs=1e-8)
    assert reveal([a - b for a, b in zip(pair, doubled, strict=True)]) == pytest.approx(-x, abs=1e-8)
    assert reveal([a + constant for a in pair]) == pytest.approx(x + constant, abs=1e-8)
    assert reveal([constant - a for a in pair]) == pytest.approx(constant - x, abs=1e-8)


def test_shares_of_other_owners_or_scales_do_not_mix():
    first, second = share([1.0])
    with pytest.raises(TypeError, match="do not mix"):
        first + second
    with pytest.raises(TypeError, match="do not mix"):
        first + ScalarShare(first.values, 0, 0)
    with pytest.raises(ValueError, match="zip"):
        first + share([1.0, 2.0])[0]


def test_one_share_alone_says_nothing():
    """The top bit of server 1's share of a constant is a fair coin."""
    tops = [share([3.0])[1].values[0] >> 127 for _ in range(4000)]
    assert abs(np.mean(tops) - 0.5) < 5 * 0.5 / np.sqrt(4000)
