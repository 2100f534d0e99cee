"""The registry of methods: what it names exists, and settings that do not fit a method are refused with one line."""

from __future__ import annotations

import dataclasses
from importlib import import_module

import pytest

from mpc_programs.rules import RULES
from orchestrator.config import load_config
from orchestrator.errors import ConfigError
from orchestrator.methods import LocalMethod, method_class
from orchestrator.models import NETWORKS
from orchestrator.registry import METHODS, Method

NAMED = {
    "f2gnn": "F2GNN",
    "fedavg": "FedAvg",
    "local": "Alone",
    "fedpub": "FedPub",
    "fedsage": "FedAvg",
    "fedsage+": "FedSagePlus",
}


@pytest.mark.parametrize("name", NAMED)
def test_the_methods_by_name(name):
    assert method_class(name).__name__ == NAMED[name] and issubclass(method_class(name), LocalMethod)


@pytest.mark.parametrize("name", METHODS)
def test_whatever_is_registered_can_be_imported(name):
    module, _, attribute = METHODS[name].client.partition(":")
    assert issubclass(getattr(import_module(module), attribute), LocalMethod)
    assert not getattr(method_class(name), "__abstractmethods__", None)


@pytest.mark.parametrize("name", METHODS)
def test_rules_and_networks_exist_and_personal_is_what_the_rule_says(name):
    method = METHODS[name]
    assert set(method.networks) <= NETWORKS.keys() | {"own"}  # which is there only while it is trained
    if method.rule is None:
        assert method.personal  # or there would be a global model that nothing moves
    else:
        assert method.personal == RULES[method.rule].personal


def test_every_rule_and_every_network_has_a_method():
    assert {method.rule for method in METHODS.values()} - {None} == RULES.keys()
    assert {name for method in METHODS.values() for name in method.networks or NETWORKS} == NETWORKS.keys() | {"own"}


def test_an_entry_cannot_be_changed():
    with pytest.raises(dataclasses.FrozenInstanceError):
        METHODS["fedavg"].rule = "f2gnn"
    assert Method("module:Class", "fedavg") == Method("module:Class", "fedavg", (), False)


FITS = {
    "f2gnn": [],
    "fedavg": [],
    "local": ["evaluation.where=clients"],
    "fedpub": ["evaluation.where=clients", "model.name=gcn-classifier"],
    "fedsage": ["model.name=sage"],
    "fedsage+": ["model.name=sage"],
}


def settings(name, *more):
    return [f"method.name={name}", *FITS[name], *more]


@pytest.mark.parametrize("name", METHODS)
def test_what_fits_is_accepted_and_survives_the_run_folder(name, tmp_path):
    config = load_config(overrides=settings(name))
    (tmp_path / "config.yaml").write_text(config.to_yaml())
    assert load_config(file=tmp_path / "config.yaml") == config


@pytest.mark.parametrize("network", [*NETWORKS, "own"])
@pytest.mark.parametrize("name", METHODS)
def test_networks(name, network):
    """All of them, for a method that names none."""
    overrides = settings(name, f"model.name={network}")
    networks = METHODS[name].networks
    if not networks or network in networks:
        assert load_config(overrides=overrides).model.name == network
    else:
        with pytest.raises(ConfigError) as caught:
            load_config(overrides=overrides)
        assert str(caught.value) == f"model.name = {network}: method.name = {name} trains {' or '.join(networks)} only"


PERSONAL = [name for name, method in METHODS.items() if method.personal]


@pytest.mark.parametrize("name", PERSONAL)
@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ("evaluation.where=whole_graph", "method.name = {} makes no global model: set evaluation.where to clients"),
        (
            "federation.sampling=with_replacement",
            "federation.sampling = with_replacement: with method.name = {} clients are distinct",
        ),
        ("method.stateful=false", "method.stateful = false: with method.name = {} every client keeps its own model"),
    ],
)
def test_personal_methods_refuse_what_does_not_fit_them(name, wrong, message):
    with pytest.raises(ConfigError) as caught:
        load_config(overrides=settings(name, wrong))
    assert str(caught.value) == message.format(name)


@pytest.mark.parametrize("name", [name for name in METHODS if name not in PERSONAL])
def test_the_others_accept_all_of_that(name):
    wrong = ["evaluation.where=whole_graph", "federation.sampling=with_replacement", "method.stateful=false"]
    assert not load_config(overrides=settings(name, *wrong)).method.stateful


@pytest.mark.parametrize("wrong", ["privacy.clip_norm=1", "privacy={clip_norm: 1, noise_multiplier: 1}"])
def test_there_is_no_privacy_where_nothing_is_released(wrong):
    with pytest.raises(ConfigError) as caught:
        load_config(overrides=settings("local", wrong))
    message = "method.name = local releases nothing: leave privacy.clip_norm and noise_multiplier out"
    assert str(caught.value) == message
    assert load_config(overrides=settings("fedavg", wrong)).privacy.clip_norm == 1


def test_an_unknown_method_is_told_those_that_there_are():
    with pytest.raises(ConfigError) as caught:
        load_config(overrides=["method.name=fedprox"])
    assert str(caught.value) == f"method.name: expected one of {', '.join(METHODS)}, got 'fedprox'"
