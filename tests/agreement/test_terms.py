"""Terms have one way to be written, and whatever else is refused by name; an offer is signed for all that it says."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.agreement.from_settings import plan_of
from orchestrator.agreement.identity import OwnKey
from orchestrator.agreement.terms import SECTIONS, Offer, RunTerms, sign_offer
from orchestrator.config import load_config
from orchestrator.errors import ConsentError

CONFIG = load_config(overrides=["privacy.clip_norm=1.0", "privacy.noise_multiplier=1.0", "privacy.ledger=mine.json"])
TERMS = RunTerms.of(CONFIG, "0" * 64, "ab" * 8, plan_of(CONFIG), 1234)
PLANS = [
    (),
    ("federation.sampling=cyclic", "clients.count=40", "privacy.clip_norm=0.1"),
    ("federation.sampling=poisson", "privacy.sensitivity=bounded_weights"),
    ("method.name=privfairfl", "method.counts_noise=2.0"),
    ("evaluation={where: clients, tables: summed}",),
]


def written(tree) -> bytes:
    return json.dumps(tree, sort_keys=True, separators=(",", ":")).encode()


@pytest.mark.parametrize("overrides", PLANS)
def test_terms_are_read_as_they_were_written_and_their_plan_is_the_same(overrides):
    config = load_config(overrides=["privacy.clip_norm=1.0", "privacy.noise_multiplier=1.0", *overrides])
    for seed, name in ((None, ""), (2**63 - 1, "cells")):
        terms = RunTerms.of(config, "0" * 64, "ab" * 8, plan_of(config), 1234, seed=seed, sum=name)
        read = RunTerms.from_bytes(terms.to_bytes())
        assert read == terms and read.digest == terms.digest
        assert read.plan == plan_of(config) and read.plan.digest == plan_of(config).digest


def test_a_sites_own_settings_are_not_in_them():
    assert CONFIG.privacy.ledger is not None and b"mine.json" not in TERMS.to_bytes()
    assert {*TERMS.settings} == {*SECTIONS} and "seed" not in TERMS.settings


def test_terms_that_differ_have_another_digest():
    others = [replace(TERMS, rounds=2), replace(TERMS, run="cd" * 8), replace(TERMS, seed=1), replace(TERMS, sum="x")]
    assert len({TERMS.digest, *(terms.digest for terms in others)}) == 5


@pytest.mark.parametrize(
    ("field", "values"),
    [
        ("consortium", ["", "0" * 63, "G" * 64, None, 1, "0" * 64 + "\n"]),
        ("run", ["", "ab", "../../etc", "AB" * 8, "ab" * 33, None]),
        ("rounds", [0, -1, 1.0, True, "1", None, 2**40]),
        ("length", [0, -1, 1.5, None]),
        ("settings", [None, [], {}, {name: {} for name in SECTIONS[1:]}, dict.fromkeys(SECTIONS, 1)]),
        ("settings", [{**{name: {} for name in SECTIONS}, "privacy": {"ledger": "x"}}]),
        ("settings", [{**{name: {} for name in SECTIONS}, "data": {}}]),
        ("sum", [None, 1, "x" * 201]),
        ("seed", [-1, 2**63, 1.0, True, "1"]),
        ("plan", [None, [], {}, 1]),
    ],
)
def test_a_field_of_another_type_or_range_is_refused_by_name(field, values):
    tree = json.loads(TERMS.to_bytes())
    for value in values:
        with pytest.raises(ValueError, match=f"the terms have (a|the) field '{field}'"):
            RunTerms.from_bytes(written({**tree, field: value}))


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("clip_norm", "1"),
        ("min_cohort", -1),
        ("sampling", "some"),
        ("engine", 1),
        ("adaptive", 1),
        ("bands", [0.5]),
        ("bands", {}),
        ("sums", [{"name": "x"}]),
        ("sums", [1]),
        ("noise", {}),
        ("parameters", {}),
        ("vectors", {"update_bits": 60, "weight_bits": 32, "integer_bits": 6}),
    ],
)
def test_a_plan_that_is_none_is_refused_by_name(field, value):
    tree = json.loads(TERMS.to_bytes())
    tree["plan"][field] = value
    with pytest.raises(ValueError, match="the terms have the field 'plan"):
        RunTerms.from_bytes(written(tree))


def test_there_is_one_way_to_write_them():
    data = TERMS.to_bytes()
    tree = json.loads(data)
    for other in (
        data + b" ",
        json.dumps(tree, sort_keys=True).encode(),
        written(dict(reversed(tree.items()))).replace(b'"seed":null', b'"seed": null'),
        data.replace(b'"length":1234', b'"length":1234,"length":1234'),
        data.replace(b'"length":1234', b'"length":12,"length":1234'),
        data.replace(b'"delta":1e-05', b'"delta":0.00001'),
    ):
        assert other != data
        with pytest.raises(ValueError, match="not written in their one way"):
            RunTerms.from_bytes(other)


@pytest.mark.parametrize(
    ("data", "text"),
    [
        (b"", "no JSON"),
        (b"\xff", "no JSON"),
        (b"[" * 100_000, "no JSON"),
        (b"[]", "other fields than"),
        (b"{}", "other fields than"),
        (TERMS.to_bytes().replace(b'"seed":null', b'"seed":NaN'), "no JSON"),
        (TERMS.to_bytes().replace(b'"delta":1e-05', b'"delta":Infinity'), "no JSON"),
        (TERMS.to_bytes().replace(b'"delta":1e-05', b'"delta":1e999'), "field 'delta'"),
        (b" " * (2**20 + 1), "expected at most"),
    ],
)
def test_bytes_that_are_no_terms_are_refused(data, text):
    with pytest.raises(ValueError, match=text) as caught:
        RunTerms.from_bytes(data)
    assert "\n" not in str(caught.value)


anything = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=6), inner, max_size=3),
    max_leaves=8,
)


@given(st.data())
def test_whatever_is_changed_is_refused_by_a_value_error_or_is_other_terms(data):
    tree = json.loads(TERMS.to_bytes())
    inner = tree
    while True:
        name = data.draw(st.sampled_from(sorted(inner)))
        if isinstance(inner[name], dict) and inner[name] and data.draw(st.booleans()):
            inner = inner[name]
        else:
            break
    if data.draw(st.booleans()):
        del inner[name]
    else:
        inner[data.draw(st.sampled_from([name, "more"]))] = data.draw(anything)
    changed = written(tree)
    try:
        read = RunTerms.from_bytes(changed)
    except ValueError as error:
        assert "\n" not in str(error)
    else:
        assert read.to_bytes() == changed


# Offers


@pytest.fixture(scope="module")
def offer(consortium):
    terms = replace(TERMS, consortium=consortium.roster.digest).to_bytes()
    keys = (b"0" * 32, b"1" * 32)
    own = [consortium.keys[name] for name in ("uni-x", "uni-y")]
    signatures = [sign_offer(own[k], k, b"r" * 16, terms, keys[k]) for k in (0, 1)]
    return Offer(b"r" * 16, terms, keys, (signatures[0], signatures[1]))


def test_an_offer_says_its_terms_to_whoever_has_the_roster(consortium, offer):
    assert Offer.from_bytes(offer.to_bytes()) == offer
    assert offer.check(consortium.roster) == replace(TERMS, consortium=consortium.roster.digest)


def test_no_byte_of_an_offer_can_be_changed(consortium, offer):
    data = bytearray(offer.to_bytes())
    for place in range(0, len(data), 7):
        changed = data.copy()
        changed[place] ^= 1
        with pytest.raises(ConsentError, match=r"not signed by aggregator uni-[xy] \(server [01]\)"):
            Offer.from_bytes(bytes(changed)).check(consortium.roster)


def test_signatures_of_others_do(consortium, offer):
    stranger = consortium.keys["hub"]
    signed = sign_offer(stranger, 1, offer.run, offer.terms, offer.keys[1])
    with pytest.raises(ConsentError, match=r"not signed by aggregator uni-y \(server 1\)"):
        replace(offer, signatures=(offer.signatures[0], signed)).check(consortium.roster)


def test_terms_that_both_signed_and_nobody_can_read_are_refused(consortium, tmp_path):
    own = [consortium.keys[name] for name in ("uni-x", "uni-y")]
    for terms, text in (
        (b"{}", "other fields than"),
        (TERMS.to_bytes(), "the run is of the roster 0000000000000000"),
    ):
        keys = (b"0" * 32, b"1" * 32)
        signatures = [sign_offer(own[k], k, b"r" * 16, terms, keys[k]) for k in (0, 1)]
        with pytest.raises(ConsentError, match=text):
            Offer(b"r" * 16, terms, keys, (signatures[0], signatures[1])).check(consortium.roster)


@given(st.binary(max_size=300))
def test_bytes_that_are_no_offer_are_refused(consortium, data):
    try:
        offer = Offer.from_bytes(data)
    except ValueError as error:
        assert f"the offer has {len(data)} bytes" in str(error)
    else:
        assert offer.to_bytes() == data
        with pytest.raises(ConsentError):
            offer.check(consortium.roster)


def test_a_session_has_a_name_of_its_own(offer):
    others = [
        replace(offer, run=b"s" * 16),
        replace(offer, keys=(b"2" * 32, offer.keys[1])),
        replace(offer, keys=(offer.keys[0], b"2" * 32)),
        replace(offer, terms=offer.terms + b" "),
    ]
    assert len({offer.session, *(other.session for other in others)}) == 5
    assert replace(offer, signatures=offer.signatures[::-1]).session == offer.session


def test_an_offer_is_signed_for_its_purpose(consortium, offer):
    own: OwnKey = consortium.keys["uni-x"]
    message = sign_offer(own, 0, offer.run, offer.terms, offer.keys[0])
    assert message == offer.signatures[0] != own.sign(b"safegnn upload 1", offer.terms)
