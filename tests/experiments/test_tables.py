"""Tables: what is written can be read again, and a spread says no more than its values do."""

from __future__ import annotations

import csv
from statistics import mean, stdev

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from orchestrator.errors import RunError
from orchestrator.experiments.tables import (
    Spread,
    gap_lines,
    markdown,
    metric,
    nodes_behind,
    short,
    with_nodes,
    write_table,
)

VALUES = st.floats(0, 1)
TEXT = st.text(
    st.characters(categories=["L", "N", "P", "S"], include_characters=" |", exclude_characters="\\"), max_size=9
)


@st.composite
def tables(draw, cells):
    """Rows with the same columns."""
    columns = draw(st.lists(TEXT, min_size=1, max_size=4, unique=True))
    rows = draw(st.lists(st.tuples(*(cells for _ in columns)), min_size=1, max_size=5))
    return [dict(zip(columns, row, strict=True)) for row in rows]


def parsed(line: str) -> list[str]:
    """The cells of a line of Markdown, whose bars inside a cell are escaped."""
    assert line.startswith("| ") and line.endswith(" |")
    return [cell.replace("\\|", "|") for cell in line[2:-2].split(" | ")]


@given(st.lists(VALUES, min_size=2, max_size=6))
def test_a_spread_is_mean_and_sample_deviation(values):
    spread = Spread.of(values)
    assert spread == (pytest.approx(mean(values)), pytest.approx(stdev(values)))
    assert str(spread) == f"{spread.mean:.4f} ± {spread.sd:.4f}"


@given(VALUES)
def test_one_run_has_no_deviation(value):
    assert Spread.of([value]) == (value, None) and str(Spread.of([value])) == f"{value:.4f}"


@given(st.lists(VALUES, max_size=5), st.integers(0, 5))
def test_an_undefined_value_makes_the_whole_undefined(values, place):
    values = [*values[:place], None, *values[place:]]
    assert Spread.of(values) == (None, None) and str(Spread.of(values)) == "undefined"


def test_cells():
    assert (metric(0.81446), metric(None)) == ("0.8145", "undefined")
    assert (short(1999.4), short(0.031661), short(None)) == ("1999", "0.03166", None)


def test_a_gap_is_told_with_its_interval_its_nodes_and_its_clients():
    """Two groups with one node each agree, which is not fair; one group alone is not either."""
    few = {"low": 0.0, "high": 0.79, "n_s0": 1, "n_s1": 1}
    assert gap_lines({"delta_sp": 0.0}, {"delta_sp": few}, {}) == [
        "delta_sp 0.0000, 95 % interval 0.0000 to 0.7900; n = 1 (s = 0), 1 (s = 1)"
    ]
    none = {"low": None, "high": None, "n_s0": 9, "n_s1": 0}
    assert gap_lines({"delta_eo": None}, {"delta_eo": none}, {"delta_eo": "no positives with s = 1"}) == [
        "delta_eo undefined: no positives with s = 1; n = 9 (s = 0), 0 (s = 1)"
    ]
    over = few | {
        "class": 2,
        "classes_compared": 3,
        "clients": 2,
        "clients_lacking": 4,
        "worst_n_s0": 5,
        "worst_n_s1": 6,
    }
    values = {"delta_sp": 0.25, "delta_sp_mean": 0.5, "delta_sp_worst": 1.0}
    assert gap_lines(values, {"delta_sp": over}, {})[0].endswith(
        "n = 1 (s = 0), 1 (s = 1), class 2, which differs most of 3; over 2 clients that have both groups mean 0.5000, "
        "worst 1.0000 (n = 5, 6); 4 lack one"
    )


def test_nodes_are_the_fewest_over_the_runs():
    runs = [{"gaps": {"delta_sp": {"n_s0": a, "n_s1": b}}} for a, b in ((9, 4), (7, 5))]
    assert nodes_behind(runs, "delta_sp") == (7, 4) and nodes_behind(runs, "auc") is None
    assert with_nodes("0.1 ± 0.2", (7, 4)) == "0.1 ± 0.2 (n = 7, 4)" and with_nodes(0.5, None) == "0.5"


@given(tables(TEXT))
def test_every_cell_of_a_markdown_table_can_be_read_again(rows):
    head, rule, *lines = markdown(rows).split("\n")
    assert rule == "|" + "---|" * len(rows[0])
    for line, cells in zip([head, *lines], [list(rows[0]), *(list(row.values()) for row in rows)], strict=True):
        assert line.replace("\\|", "").count("|") == len(cells) + 1
        assert parsed(line) == cells


def test_what_is_not_there_is_a_dash_in_markdown_and_empty_in_csv(tmp_path):
    rows = [{"setting": "a", "σ": 0.5, "auc": Spread.of([0.25, 0.75])}, {"setting": "b|c", "σ": None, "auc": 1}]
    text = markdown(rows)
    assert text.split("\n") == [
        "| setting | σ | auc |",
        "|---|---|---|",
        "| a | 0.5 | 0.5000 ± 0.3536 |",
        "| b\\|c | – | 1 |",
    ]
    write_table(tmp_path, "table", f"# title\n\n{text}", rows)
    assert (tmp_path / "table.md").read_text(encoding="utf-8") == f"# title\n\n{text}\n"
    assert (tmp_path / "table.csv").read_text(encoding="utf-8").split("\n") == [
        "setting,σ,auc",
        "a,0.5,0.5000 ± 0.3536",
        "b|c,,1",
        "",
    ]


@settings(max_examples=25)
@given(rows=tables(st.one_of(VALUES, st.none())))
def test_csv_holds_every_digit(tmp_path_factory, rows):
    folder = tmp_path_factory.mktemp("table")
    write_table(folder, "exact", "", rows)
    with open(folder / "exact.csv", newline="", encoding="utf-8") as file:
        read = list(csv.DictReader(file))
    assert [[None if cell == "" else float(cell) for cell in row.values()] for row in read] == [
        list(row.values()) for row in rows
    ]


@pytest.mark.parametrize("rows", [[], [{"a": 1}, {"b": 1}], [{"a": 1}, {"a": 1, "b": 2}]])
def test_rows_of_other_columns_are_refused(tmp_path, rows):
    with pytest.raises(ValueError, match="expected"):
        markdown(rows)
    with pytest.raises(ValueError, match="expected"):
        write_table(tmp_path, "table", "", rows)
    assert not list(tmp_path.iterdir())


def test_a_folder_that_is_gone_is_one_line(tmp_path):
    with pytest.raises(RunError, match=r"table\.md: cannot be written"):
        write_table(tmp_path / "gone", "table", "", [{"a": 1}])
