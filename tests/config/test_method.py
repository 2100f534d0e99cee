"""Each method has its own settings: whose one is, what is refused, and what a change of method leaves behind."""

from __future__ import annotations

import re
from copy import deepcopy
from itertools import permutations

import pydantic
import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.config import Config, load_config, settings_class, validated
from orchestrator.config.merging import lay
from orchestrator.errors import ConfigError
from orchestrator.registry import METHODS
from tests.conftest import FITS

FIELDS = {name: settings_class(name).model_fields.keys() for name in METHODS}
EVERY = sorted(set().union(*FIELDS.values()) - {"name"})
FOREIGN = [(name, setting) for name in METHODS for setting in EVERY if setting not in FIELDS[name]]
SETTINGS = [(name, setting) for name in METHODS for setting in EVERY if setting in FIELDS[name]]


def refusal(*overrides, **layers):
    with pytest.raises(ConfigError) as caught:
        load_config(overrides=overrides, **layers)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def of(name, *more, **layers):
    return load_config(overrides=[f"method.name={name}", *FITS[name], *more], **layers)


@pytest.fixture
def write(tmp_path):
    def write(text):
        path = tmp_path / "settings.yaml"
        path.write_text(text)
        return path

    return write


# Whose a setting is


@pytest.mark.parametrize(("name", "setting"), FOREIGN)
def test_a_setting_of_another_method_is_refused_with_those_that_know_it(name, setting):
    others = ", ".join(other for other in METHODS if setting in FIELDS[other])
    said = f"method.{setting}: a setting of {others}; {name} does not know it"
    assert refusal(f"method.name={name}", *FITS[name], f"method.{setting}=1") == said


@pytest.mark.parametrize(("name", "setting"), SETTINGS)
def test_a_misspelt_setting_is_told_what_was_meant(name, setting):
    wrong = setting + setting[-1]
    said = f"method.{wrong}: unknown setting of {name} (did you mean {setting}?)"
    assert refusal(f"method.name={name}", *FITS[name], f"method.{wrong}=1") == said


@pytest.mark.parametrize(
    ("overrides", "said"),
    [
        (["method.tauu=1"], "method.tauu: unknown setting of f2gnn (did you mean tau?)"),
        (["method.mask_penalty=1"], "method.mask_penalty: a setting of fedpub; f2gnn does not know it"),
        (["method.zzz=1"], "method.zzz: unknown setting of f2gnn"),
        (["method.generator.latent=4"], "method.generator: a setting of fedsage+; f2gnn does not know it"),
        (
            ["method={name: fedsage+, generator: {latnt: 4}}", "model.name=sage"],
            "method.generator.latnt: unknown setting of fedsage+ (did you mean latent?)",
        ),
        (["federation.round=1"], "federation.round: unknown setting (did you mean rounds?)"),
        (["data.files={node: 1}"], "data.files.label: must be given; data.files.nodes: must be given; "),
        (["methods=1"], "methods: unknown setting (did you mean method?)"),
        (["method={1: 2}"], "method.1: "),
        (["method="], "method: expected settings by name, e.g. {name: f2gnn}, got None"),
        (["method=3"], "method: expected settings by name, e.g. {name: f2gnn}, got 3"),
        (["method=yes"], "method: expected settings by name, e.g. {name: f2gnn}, got True"),
        (["method.name=[1]"], f"method.name: expected one of {', '.join(METHODS)}, got [1]"),
        (["method.name=no"], f"method.name: expected one of {', '.join(METHODS)}, got False"),
        (["method.name="], f"method.name: expected one of {', '.join(METHODS)}, got None"),
    ],
)
def test_what_is_refused_is_named_in_one_line(overrides, said):
    assert refusal(*overrides).startswith(said)


def test_only_f2gnn_asks_that_its_final_score_fits():
    assert refusal("method={lam: 8, tau: 0.001}").startswith("method.tau = 0.001 is too small for method.lam = 8")
    assert not {"lam", "tau"} & (FIELDS["fedavg"] | FIELDS["fedpub"] | FIELDS["local"] | FIELDS["fedsage+"])


@pytest.mark.parametrize("name", METHODS)
def test_the_settings_are_the_methods_own_frozen_and_survive_text(name, write):
    config = of(name)
    assert type(config.method) is settings_class(name) and config.method.name == name
    assert load_config(file=write(config.to_yaml())) == config == Config.model_validate(config.model_dump())
    assert Config(**{**dict(config), "method": config.method}) == config  # as a program may hand them over
    with pytest.raises(pydantic.ValidationError, match="frozen"):
        config.method.name = "local"


def test_an_object_of_another_methods_class_is_checked_by_the_named_ones():
    stray = settings_class("f2gnn")(name="fedavg")
    with pytest.raises(pydantic.ValidationError, match=r"method\.alpha\n  Extra inputs are not permitted"):
        Config(method=stray)


# What a change of method leaves behind


def test_a_preset_may_be_trained_by_another_method():
    nba, config = load_config(["nba"]), of("fedavg", presets=["nba"])
    assert (nba.method.tau, nba.method.lam) == (4, 0.5)
    assert config.method.model_dump() == {
        "name": "fedavg",
        "local_epochs": nba.method.local_epochs,
        "learning_rate": nba.method.learning_rate,
        "weight_decay": nba.method.weight_decay,
        "stateful": True,
    }
    assert not load_config(["dp-large"]).method.stateful
    off = "privacy={clip_norm: null, sensitivity: worst_case}"
    assert of("local", off, presets=["dp-large"]).method.keeps_state  # stateful is not among its settings


def test_settings_in_the_same_or_a_later_layer_are_refused(write):
    said = "method.tau: a setting of f2gnn; fedavg does not know it"
    assert refusal(file=write("method: {name: fedavg, tau: 2}")) == said
    assert refusal("method.tau=2", file=write("method: {name: fedavg}")) == said
    assert refusal("method.name=fedavg", "method.tau=2") == said
    assert refusal("method.tau=2", "method.name=fedavg") == said  # one command's --set are one layer
    assert refusal("method.tau=2", presets=["fedsage-cora-louvain-5"]).endswith("fedsage does not know it")
    assert refusal(presets=["fedsage-cora-louvain-5", "nba"]).startswith("method.alpha: a setting of f2gnn; fedsage")


def test_a_slip_in_an_earlier_layer_is_no_setting_of_the_earlier_method(write):
    said = "method.tauu: unknown setting of fedavg"
    assert refusal("method.name=fedavg", file=write("method: {tauu: 2}")) == said
    said = "method.mask_penalty: a setting of fedpub; fedavg does not know it"
    assert refusal("method.name=fedavg", file=write("method: {mask_penalty: 2}")) == said


def test_naming_the_same_method_again_changes_nothing():
    assert load_config(["nba"], overrides=["method.name=f2gnn"]) == load_config(["nba"])


VALUES = {
    "local_epochs": st.integers(1, 9),
    "learning_rate": st.sampled_from([0.5, 0.25]),
    "stateful": st.booleans(),
    "tau": st.sampled_from([2.0, 3.0]),
    "mask_penalty": st.sampled_from([0.5, 2.0]),
    "generator": st.fixed_dictionaries({}, optional={"latent": st.integers(1, 9), "candidates": st.integers(1, 9)}),
}
LAYER = st.fixed_dictionaries({}, optional={"name": st.sampled_from(list(METHODS)), **VALUES})


@given(st.lists(LAYER, max_size=6))
def test_what_stands_in_the_end_is_what_was_meant_for_the_last_method(layers):
    """Setting by setting: what was given lives until a method that knows it is followed by one that does not."""
    tree, method, alive, untouched = {}, "f2gnn", {}, deepcopy(layers)
    for layer in layers:
        lay(tree, {"method": layer})
        before, method = method, layer.get("name", method)
        alive = {key: values for key, values in alive.items() if key not in FIELDS[before] - FIELDS[method]}
        for key in layer.keys() - {"name"}:
            alive[key] = [*alive.get(key, ()), layer[key]]
    assert layers == untouched
    tree |= {"model": {"name": (METHODS[method].networks or ("gcn",))[0]}, "evaluation": {"where": "clients"}}
    if foreign := alive.keys() - FIELDS[method]:
        with pytest.raises(ConfigError) as caught:
            validated(tree)
        assert set(re.findall(r"method\.(\w+): a setting of ", str(caught.value))) == foreign
        return
    expected = settings_class(method)(name=method).model_dump()
    for key, values in alive.items():
        inner = {name: value for one in values for name, value in one.items()} if key == "generator" else None
        expected[key] = values[-1] if inner is None else expected[key] | inner
    assert validated(tree).method.model_dump() == expected


@pytest.mark.parametrize("before", METHODS)
@pytest.mark.parametrize("after", METHODS)
def test_changed_settings_take_over_what_both_methods_know(before, after):
    """As does `compare --methods`, which derives its contenders so."""
    config = of(before, "method={local_epochs: 3, learning_rate: 0.5, weight_decay: 0.25}")
    fits = load_config(overrides=[f"method.name={after}", *FITS[after]])
    other = config.changed(method={"name": after}, model=dict(fits.model), evaluation=dict(fits.evaluation))
    assert type(other.method) is settings_class(after)
    for setting in FIELDS[after] - {"name"}:
        source = config.method if setting in FIELDS[before] else fits.method
        assert getattr(other.method, setting) == getattr(source, setting)


def test_the_order_of_overrides_does_not_matter():
    chosen = ["method.name=fedpub", "method.mask_penalty=0.5", "model.name=gcn-classifier", "evaluation.where=clients"]
    results = [load_config(["nba"], overrides=order) for order in permutations(chosen)]
    assert all(result == results[0] for result in results) and results[0].method.mask_penalty == 0.5
