import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.errors import ConfigError, RangeError
from orchestrator.mpc.fixed_point import VectorFormat, decode_scalars, encode_scalars

FORMAT = VectorFormat(update_bits=25, weight_bits=32, integer_bits=6)


@given(st.lists(st.floats(-(2.0**30), 2.0**30), max_size=20))
def test_scalars_round_trip(values):
    assert np.abs(decode_scalars(encode_scalars(np.array(values))) - values).max(initial=0) <= 2.0**-33 + 2.0**-23


@pytest.mark.parametrize("value", [float("nan"), float("inf"), 2.0**31, -(2.0**31)])
def test_scalars_out_of_range_are_refused(value):
    with pytest.raises(RangeError):
        encode_scalars(np.array([0.0, value]))


@given(st.lists(st.floats(-31.9, 31.9), min_size=1, max_size=20))
def test_the_model_round_trips(values):
    values = np.array(values)
    assert np.abs(FORMAT.decode_model(FORMAT.encode_model(values)) - values).max() <= 2.0**-48


@given(st.lists(st.floats(-10, 10), min_size=1, max_size=20))
def test_updates_are_rounded_to_nearest(values):
    values = np.array(values)
    encoded = FORMAT.encode_update(values)
    assert np.abs(encoded.view(np.int64) * 2.0**-25 - values).max() <= 2.0**-26


def test_a_format_that_does_not_fit_names_the_setting():
    with pytest.raises(ConfigError, match=r"sharing\.update_bits .* = 65 bits .* lower sharing\.update_bits to 25"):
        VectorFormat(26, 32, 6)
    with pytest.raises(ConfigError, match=r"lower sharing\.integer_bits to 30"):
        VectorFormat(25, 32, 60)
    with pytest.raises(ConfigError, match=r"sharing\.weight_bits = 33"):
        VectorFormat(10, 33, 6)


@pytest.mark.parametrize(
    ("delta", "text"),
    [
        ([np.nan], "NaN or infinity"),
        ([0.0, np.inf], "NaN or infinity"),
        ([64.0], r"norm is not below .* sharing\.integer_bits"),
        ([50.0, 50.0], "norm"),
        ([1e200], "norm"),
        ([64.0 - 2.0**-27], "norm"),  # it rounds up to 64
    ],
)
def test_updates_out_of_range_are_refused_or_confined(delta, text):
    with pytest.raises(RangeError, match=text):
        FORMAT.encode_update(np.array(delta))
    confined = FORMAT.confine_update(np.array(delta))
    assert FORMAT.norm(confined) < 64.0
    if text == "NaN or infinity" or max(delta) > 1e100:
        assert not confined.any()
    else:
        direction = np.array(delta) / np.linalg.norm(delta)
        np.testing.assert_allclose(FORMAT.decode_update(confined), 64.0 * direction, rtol=2e-6)


@given(st.lists(st.floats(-300, 300), min_size=1, max_size=30), st.sampled_from([(25, 32, 6), (1, 1, 1), (30, 20, 10)]))
def test_a_confined_update_is_the_encoded_one_or_the_longest_below_the_limit(values, bits):
    vectors, delta = VectorFormat(*bits), np.array(values)
    confined = vectors.confine_update(delta)
    assert vectors.norm(confined) < vectors.limit
    try:
        assert (confined == vectors.encode_update(delta)).all()
    except RangeError:
        assert vectors.norm(confined) <= np.linalg.norm(delta)


@given(st.lists(st.integers(-(2**30), 2**30), min_size=1, max_size=30))
def test_the_norm_is_that_of_the_integers(values):
    update = np.array(values, dtype=np.int64).view(np.uint64)
    assert FORMAT.norm(update) == pytest.approx(sum(v * v for v in values) ** 0.5 * 2.0**-25, rel=1e-14)


def test_a_model_near_the_edge_is_refused_before_it_can_wrap():
    encoded = FORMAT.encode_model(np.array([20.0])) * np.uint64(2)
    with pytest.raises(RangeError, match=r"sharing\.integer_bits"):
        FORMAT.decode_model(encoded)
    with pytest.raises(RangeError, match=r"sharing\.integer_bits"):
        FORMAT.encode_model(np.array([32.0]))


def test_noise_that_does_not_fit_is_refused():
    FORMAT.check_noise(6.0)
    with pytest.raises(ConfigError, match=r"sharing\.integer_bits"):
        FORMAT.check_noise(6.5)
