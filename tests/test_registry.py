"""The registry of methods: what it names exists, and settings that do not fit a method are refused with one line."""

from __future__ import annotations

import dataclasses
from importlib import import_module

import pytest

from mpc_programs.rules import RULES, RoundParameters
from orchestrator.agreement.from_settings import plan_of
from orchestrator.config import load_config, settings_class
from orchestrator.config.method import methods_with
from orchestrator.errors import ConfigError
from orchestrator.methods import LocalMethod, method_class
from orchestrator.models import NETWORKS
from orchestrator.registry import METHODS, Method
from tests.conftest import FITS

NAMED = {
    "f2gnn": "F2GNN",
    "fedavg": "FedAvg",
    "fedprox": "FedProx",
    "fairfed": "FairFed",
    "glocalfair": "GLocalFair",
    "privfairfl": "PrivFairFL",
    "afed": "AFed",
    "f2pgnn": "F2PGNN",
    "fedfairgnn": "FedFairGNN",
    "fairdual": "FairDual",
    "fairgnn": "FairGNN",
    "edits": "Edits",
    "local": "Alone",
    "fedpub": "FedPub",
    "fedgcn": "FedGCN",
    "gcfl": "GCFL",
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
def test_settings_are_of_the_class_that_the_client_reads(name):
    declared = (
        eval(base.__annotations__["settings"], vars(import_module(base.__module__)))
        for base in method_class(name).__mro__
        if "settings" in getattr(base, "__annotations__", {})
    )
    assert issubclass(settings_class(name), next(declared))
    assert type(load_config(overrides=settings(name)).method) is settings_class(name)


@pytest.mark.parametrize("name", METHODS)
def test_a_method_whose_clients_prepare_together_says_that_no_epsilon_counts_it(name):
    prepares = method_class(name).preparations(load_config(overrides=settings(name))) > 0
    assert prepares == bool(METHODS[name].unaccounted)


@pytest.mark.parametrize("name", [name for name, method in METHODS.items() if method.rule])
def test_rules_get_their_public_parameters_from_the_methods_settings(name):
    """The methods' own, beside what is common to all."""
    config = load_config(overrides=settings(name))
    own = config.method.rule_parameters(config.model)
    common = {"rule": METHODS[name].rule, "cohort": config.federation.cohort}
    assert plan_of(config).parameters == RoundParameters(**common, **own)


def test_the_rules_public_parameters_follow_the_settings():
    config = load_config(overrides=settings("f2gnn", "method={lam: 3, tau: 2, score_max: 1.5}"))
    assert config.method.rule_parameters(config.model) == {"lam": 3, "tau": 2, "fairness_max": 1.5}
    config = load_config(overrides=settings("fedpub", "method.similarity=5", "model.hidden=48"))
    assert config.method.rule_parameters(config.model) == {"embedding": 48, "similarity": 5}
    for name in ("fedavg", "fedsage", "fedsage+", "local"):
        config = load_config(overrides=settings(name))
        assert config.method.rule_parameters(config.model) == {}


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
    assert Method("a:Client", "a:Settings", "fedavg") == Method("a:Client", "a:Settings", "fedavg", (), False)


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
        (
            "method.stateful=false",
            f"method.stateful: a setting of {', '.join(methods_with('stateful'))}; {{}} does not know it",
        ),
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
        load_config(overrides=["method.name=nearby"])
    assert str(caught.value) == f"method.name: expected one of {', '.join(METHODS)}, got 'nearby'"
