"""Noise with bands: the very integers of its recursion, what it hides, and what it is worth."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.privacy.bands import (
    BAND_BITS,
    MOST_BANDS,
    BandedNoise,
    column_norm,
    growth,
    optimal_bands,
    prefix_error,
)

BANDS = st.lists(st.integers(0, 2**BAND_BITS - 1), max_size=6)


def taken_back(bands, earlier):
    """floor(c_1 y_{t-1} + ...) in integers of any size; earlier: the last one last."""
    return sum(band * noise for band, noise in zip(bands, reversed(earlier), strict=False)) >> BAND_BITS


@given(BANDS, st.lists(st.integers(-(2**57), 2**57), min_size=1, max_size=8))
def test_it_is_the_recursion_in_exact_integers(bands, fresh):
    noise, expected = BandedNoise(bands), []
    for z in fresh:
        expected.append(z - taken_back(bands, expected))
        if abs(expected[-1]) >= 2**62:
            with pytest.raises(OverflowError):
                noise.next(np.array([z]).view(np.uint64))
            return
        found = noise.next(np.array([z, 0]).view(np.uint64))
        assert int(found.view(np.int64)[0]) == expected[-1]


def test_products_of_all_bands_stay_in_range():
    bands, noise, expected = (
        [2**BAND_BITS - 1] * (MOST_BANDS - 1),
        BandedNoise([2**BAND_BITS - 1] * (MOST_BANDS - 1)),
        [],
    )
    for z in np.random.default_rng(0).integers(-(2**50), 2**50, 400).tolist():
        expected.append(z - taken_back(bands, expected[-MOST_BANDS:]))
        assert int(noise.next(np.array([z]).view(np.uint64)).view(np.int64)[0]) == expected[-1]


def test_noise_out_of_range_is_no_noise():
    for z in (2**62, -(2**62), -(2**63)):
        with pytest.raises(OverflowError):
            BandedNoise([5]).next(np.array([z]).view(np.uint64))


def test_without_bands_every_rounds_noise_is_its_own():
    noise, fresh = BandedNoise(()), np.array([1, 2**63], dtype=np.uint64)
    assert [noise.next(fresh) is fresh for _ in range(2)] == [True, True]


@given(BANDS, st.integers(1, 3), st.randoms(use_true_random=False))
def test_what_the_fresh_noise_hides_is_bounded_whoever_moves_the_sums_in_turns(bands, turns, random):
    """Both worlds release alike: the fresh noises that explain it differ by at most the bound of docs/privacy.md, (11).

    The sums of later rounds follow from what was released, and from what the other world's were.
    """
    b, d, moved = len(bands) + 1, 3, 1000.0
    own, other, distance = BandedNoise(bands), [], 0.0
    for t in range(b * turns + 2):
        sums = np.array([random.randrange(-(2**40), 2**40) for _ in range(d)])
        change = np.zeros(d, dtype=np.int64)
        if t % b == 0 and t // b < turns:
            direction = np.array([random.uniform(-1, 1) for _ in range(d)])
            change = np.trunc(direction / max(1e-9, np.linalg.norm(direction)) * moved).astype(np.int64)
        fresh = np.array([random.randrange(-(2**40), 2**40) for _ in range(d)])
        released = sums + own.next(fresh.view(np.uint64)).view(np.int64)
        implied = [int(r) - int(s) for r, s in zip(released, sums + change, strict=True)]
        back = [taken_back(bands, [noises[k] for noises in other]) for k in range(d)]
        distance += sum((y + f - int(z)) ** 2 for y, f, z in zip(implied, back, fresh, strict=True))
        other.append(implied)
    assert math.sqrt(distance) <= math.sqrt(turns) * (column_norm(bands) * moved + math.sqrt(b * d))


def test_a_turn_too_early_moves_it_further():
    """So a server refuses it."""
    bands = [2**BAND_BITS - 1] * 3
    rows = np.zeros(6)
    for t in (0, 1):  # two turns in successive releases, each by 1
        rows[t : t + 4] += [1.0, *(band * 2.0**-BAND_BITS for band in bands)]
    assert np.linalg.norm(rows) > 1.2 * math.sqrt(2) * column_norm(bands)


def test_at_the_operating_point_it_is_worth_what_is_said():
    """10,000 clients, 1,000 a round, 100 rounds, epsilon 4 at delta 1e-5: multiplier 3.41893 over 10 turns."""
    bands = optimal_bands(100, 10)
    assert prefix_error(bands, 100) == pytest.approx(2.9465, abs=2e-4)
    assert 3.41893 * prefix_error(bands, 100) == pytest.approx(10.07, abs=0.01)
    assert 3.41893 * prefix_error((), 100) == pytest.approx(24.30, abs=0.01)


@pytest.mark.parametrize(("rounds", "bands"), [(2, 2), (7, 3), (100, 10), (300, 50)])
def test_the_bands_are_better_than_those_of_the_square_root_and_than_none(rounds, bands):
    found, root, cut = optimal_bands(rounds, bands), [1.0], []
    for j in range(1, bands):
        root.append(root[-1] * (2 * j - 1) / (2 * j))
        cut.append(round(root[-1] * 2**BAND_BITS))
    assert len(found) == bands - 1 and all(0 <= band < 2**BAND_BITS for band in found)
    assert prefix_error(found, rounds) <= prefix_error(cut, rounds) < prefix_error((), rounds)
    assert prefix_error((), rounds) == pytest.approx(math.sqrt((rounds + 1) / 2))


def test_the_error_is_the_factorisations():
    """Against A C^-1 as matrices: the mean over prefixes, times the norm of C's columns."""
    bands, rounds = optimal_bands(30, 5), 30
    column = np.array([1.0, *(band * 2.0**-BAND_BITS for band in bands), *np.zeros(25)])
    c = np.array([[column[i - j] if i >= j else 0.0 for j in range(rounds)] for i in range(rounds)])
    b = np.tri(rounds) @ np.linalg.inv(c)
    assert prefix_error(bands, rounds) == pytest.approx(np.linalg.norm(b) / math.sqrt(rounds) * column_norm(bands))
    assert np.linalg.norm(np.linalg.inv(c)[-1]) <= growth(bands) * (1 + 1e-12)


@pytest.mark.parametrize("bands", [0, 6, MOST_BANDS + 1])
def test_bands_that_no_run_has_are_refused(bands):
    with pytest.raises(ValueError, match="bands"):
        optimal_bands(5 if bands < MOST_BANDS else 1000, bands)
