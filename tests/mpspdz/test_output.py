"""The parser on recorded outputs of real parties."""

from pathlib import Path

import pytest

from orchestrator.mpspdz.output import PartyCost, parse_cost

RECORDED = Path(__file__).with_name("recorded")


def recorded(name):
    return (RECORDED / name).read_text()


def test_costs_of_a_party():
    assert parse_cost(recorded("semi2k-128-P0.txt")) == PartyCost(
        online_seconds=0.000694057,
        online_bytes=208,
        online_rounds=8,
        preprocessing_seconds=0.00431149,
        preprocessing_bytes=13_993,
        total_seconds=0.00631947,
        setup_seconds=0.0373009,
    )


def test_small_numbers_are_printed_with_exponents():
    assert parse_cost(recorded("dealer-ring-128-P1.txt")).preprocessing_bytes == 16


def test_a_phase_without_traffic_has_none():
    cost = parse_cost(recorded("dealer-ring-128-dealer.txt"))
    assert (cost.online_bytes, cost.online_rounds, cost.preprocessing_bytes) == (0, 0, 34_568)


@pytest.mark.parametrize("name", ["semi2k-peer-killed.txt", "dealer-ring-expired.txt", "semi2k-port-in-use.txt"])
def test_an_output_without_costs_is_no_result(name):
    with pytest.raises(ValueError, match="expected one line 'Spent"):
        parse_cost(recorded(name))


def test_a_line_twice_is_refused():
    text = recorded("semi2k-128-P0.txt")
    with pytest.raises(ValueError, match="found 2"):
        parse_cost(text + text)


def test_a_changed_line_is_refused_rather_than_guessed():
    text = recorded("semi2k-128-P0.txt").replace("MB, 8 rounds) on the online", "kB, 8 rounds) on the online")
    with pytest.raises(ValueError, match="Spent"):
        parse_cost(text)
