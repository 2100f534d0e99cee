"""Charts: readable by machine and by whoever sees colours otherwise, whatever the numbers are."""

from __future__ import annotations

import math
from itertools import combinations
from xml.etree import ElementTree

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.page.svg import DARK, LIGHT, Bar, Charts, Interval, Line, Track

SIGHT = {
    "usual": np.eye(3),
    "protanopia": [[0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216], [-0.003882, -0.048116, 1.051998]],
    "deuteranopia": [[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413], [-0.011820, 0.042940, 0.968881]],
    "tritanopia": [[1.255528, -0.076749, -0.178779], [-0.078411, 0.930809, 0.147602], [0.004733, 0.691367, 0.303900]],
}
"""Machado, Oliveira and Fernandes, IEEE TVCG 15 (2009), severity 1; of linear RGB."""


def linear(colour: str) -> np.ndarray:
    values = np.array([int(colour[k : k + 2], 16) / 255 for k in (1, 3, 5)])
    return np.where(values <= 0.04045, values / 12.92, ((values + 0.055) / 1.055) ** 2.4)


def lab(rgb: np.ndarray) -> np.ndarray:
    xyz = np.array([[0.4124, 0.3576, 0.1805], [0.2126, 0.7152, 0.0722], [0.0193, 0.1192, 0.9505]]) @ np.clip(rgb, 0, 1)
    f = np.cbrt(xyz / [0.9505, 1.0, 1.089])
    return np.array([116 * f[1] - 16, 500 * (f[0] - f[1]), 200 * (f[1] - f[2])])


@pytest.mark.parametrize("sight", SIGHT)
@pytest.mark.parametrize(("palette", "paper"), [(LIGHT, "#ffffff"), (DARK, "#15181c")])
def test_colours_are_told_apart_and_stand_out(palette, paper, sight):
    """CIELAB distances of at least 12, dashes and markers besides; contrast as WCAG asks of graphics, 3."""
    seen = [np.array(SIGHT[sight]) @ linear(colour) for colour in palette]
    for (k, a), (j, b) in combinations(enumerate(seen), 2):
        assert np.linalg.norm(lab(a) - lab(b)) >= 12, (palette[k], palette[j])
    for colour in palette:
        light = [linear(c) @ [0.2126, 0.7152, 0.0722] + 0.05 for c in (colour, paper)]
        assert max(light) / min(light) >= 3, colour


def parsed(chart) -> ElementTree.Element:
    root = ElementTree.fromstring(str(chart.svg))
    for element in root.iter():
        for name, value in element.attrib.items():
            assert "nan" not in value and "inf" not in value, (element.tag, name, value)
    assert root.find("title").text == chart.title and root.find("desc").text
    return root


NUMBERS = st.one_of(st.none(), st.just(math.nan), st.floats(-1e9, 1e9), st.floats(0, 1))


@given(st.lists(st.lists(NUMBERS, min_size=1, max_size=20), min_size=1, max_size=7), st.booleans())
def test_lines_are_drawn_whatever_is_undefined(columns, from_zero):
    lines = [Line(f"<{k}>", range(1, len(ys) + 1), ys, ys, ys, ys) for k, ys in enumerate(columns)]
    parsed(Charts().lines("<a & b>", lines, "round", "<y>", [(0.5, "<chance>")], from_zero))


@given(st.lists(st.tuples(st.floats(0, 1e6), st.floats(-1e6, 1e6)), max_size=9))
def test_planes_are_drawn_wherever_points_lie(points):
    tracks = [Track(f"t{k}", point, points, (0.1, 0.2), points) for k, point in enumerate(points[:3])]
    parsed(Charts().plane("t", tracks, "x", "y", [(0.5, "chance")]))


@given(st.lists(st.floats(0, 1e12), max_size=40))
def test_bars_columns_and_intervals_are_drawn(values):
    charts = Charts()
    roots = [
        parsed(charts.bars("b", [Bar(str(v), v, str(v), v / 2) for v in values], "s")),
        parsed(charts.columns("c", values, "x", "y", [str(v) for v in values])),
        parsed(charts.intervals("i", [Interval(str(v), v, v - 1, None if v < 1 else v + 1, "t") for v in values], "x")),
    ]
    identifiers = [element.attrib["id"] for root in roots for element in root.iter() if "id" in element.attrib]
    assert len(set(identifiers)) == len(identifiers) == 6


def test_a_line_lies_where_its_numbers_say_and_has_holes():
    root = parsed(Charts().lines("t", [Line("", [1, 2, 3, 4, 5], [0.0, 1.0, None, 0.5, 0.5])], "round", "y"))
    paths = [path.attrib["d"] for path in root.iter("path") if path.attrib["class"].startswith("l c0")]
    assert len(paths) == 2  # before the hole and after it
    (x1, y1), (x2, y2) = [tuple(map(float, p.split(","))) for p in paths[0][1:].split("L")]
    (x4, y4), (x5, y5) = [tuple(map(float, p.split(","))) for p in paths[1][1:].split("L")]
    assert x2 - x1 == pytest.approx(x5 - x4, abs=0.2) and y4 == y5 == pytest.approx((y1 + y2) / 2, abs=0.2) and y1 > y2
    assert "0 at round 1, 0.5 at 5; between 0 and 1" in root.find("desc").text


def test_many_rounds_make_a_small_chart():
    ys = [math.sin(k / 50) for k in range(20_000)]
    chart = Charts().lines("t", [Line("", range(1, 20_001), ys, raw=ys)], "round", "y")
    assert len(chart.svg) < 20_000 and "at 20000" in chart.svg


def test_names_at_the_ends_do_not_cover_each_other():
    root = parsed(Charts().lines("t", [Line(f"arm {k}", [1, 2], [0, 0.5]) for k in range(6)], "round", "y"))
    places = sorted(float(text.attrib["y"]) for text in root.iter("text") if text.attrib["class"].startswith("e "))
    assert len(places) == 6 and min(np.diff(places)) >= 14 and places[-1] <= 260
