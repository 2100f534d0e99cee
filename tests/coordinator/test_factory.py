"""From settings to engines."""

from __future__ import annotations

import pytest

from mpc_programs.programs import PROGRAMS
from mpc_programs.rules import RULES, RoundParameters
from orchestrator.agreement.from_settings import plan_of
from orchestrator.config import EngineConfig, load_config
from orchestrator.coordinator.alone import NoEngine
from orchestrator.coordinator.embedded import EmbeddedEngine
from orchestrator.coordinator.factory import create_engine
from orchestrator.coordinator.mpspdz import MpSpdzEngine
from orchestrator.coordinator.plaintext import PlaintextEngine
from orchestrator.errors import ConfigError
from orchestrator.mpc.fixed_point import clip_error
from orchestrator.mpspdz.installation import PROTOCOLS
from orchestrator.privacy.sensitivity import dropout_bound, fixed_weight
from orchestrator.registry import METHODS
from tests.support import f2gnn_bound


@pytest.mark.parametrize(("name", "kind"), [("plaintext", PlaintextEngine), ("embedded", EmbeddedEngine)])
def test_the_named_engine_is_made_and_nothing_is_started(name, kind):
    with create_engine(load_config(overrides=[f"engine.name={name}"])) as engine:
        assert type(engine) is kind
        assert getattr(engine, "pids", {}) == {}


def test_mpspdz_takes_its_own_settings_and_the_bound_follows_its_program(standin):
    chosen = f"engine={{name: mpspdz, protocol: dealer-ring, program: faithful, mpspdz_home: '{standin.home}'}}"
    config = load_config(overrides=[chosen])
    with create_engine(config) as engine:
        assert type(engine) is MpSpdzEngine and engine.pids == {}
    embedded = load_config()
    assert plan_of(config).error_bound(3, 0.5) > 1000 * plan_of(embedded).error_bound(3, 0.5)
    assisted = load_config(overrides=[chosen, "engine.program=assisted"])
    assert plan_of(assisted).error_bound(3, 0.5) == plan_of(embedded).error_bound(3, 0.5)
    plan = plan_of(embedded)
    assert plan.error_bound(3, 0.5) == f2gnn_bound(plan.vectors, 3, 0.5, plan.rule.gain)


def test_the_choices_are_those_that_exist():
    fields = EngineConfig.model_fields
    assert fields["program"].annotation.__args__ == tuple(PROGRAMS)
    assert set(fields["protocol"].annotation.__args__) == PROTOCOLS.keys()


def test_the_rounds_parameters_are_those_of_the_settings():
    config = load_config(["reference"], overrides=["federation.cohort=5", "method={lam: 8, tau: 2}"])
    assert plan_of(config).rule == RoundParameters("f2gnn", 5, lam=8.0, tau=2.0, fairness_max=1e5, ratio_max=None)
    clipped = load_config(overrides=["method.name=fedavg", "privacy.clip_norm=0.5", "sharing.integer_bits=5"])
    assert plan_of(clipped).rule.rule == "fedavg"
    assert plan_of(clipped).rule.ratio_max == plan_of(clipped).vectors.limit / 0.5 == 2**5 / 0.5


@pytest.mark.parametrize(
    ("sampling", "sensitivity", "expected"),
    [
        ("poisson", "bounded_weights", 10),
        ("poisson", "worst_case", None),
        ("distinct", "bounded_weights", None),
        ("distinct", "worst_case", None),
    ],
)
def test_denominators_are_fixed_exactly_where_the_bound_needs_it(sampling, sensitivity, expected):
    config = load_config(overrides=[f"federation.sampling={sampling}", f"privacy.sensitivity={sensitivity}"])
    assert plan_of(config).rule.expected == expected


def test_settings_beyond_fixed_denominators_are_refused_by_name_also_without_noise():
    poisson = ["federation.sampling=poisson", "privacy.sensitivity=bounded_weights"]
    with pytest.raises(ConfigError, match=r"^method\.score_max = 5: expected at most 4") as caught:
        create_engine(load_config(overrides=[*poisson, "method.score_max=5"]))
    assert "\n" not in str(caught.value)
    create_engine(load_config(overrides=[*poisson, "method.name=fedavg"])).close()


@pytest.mark.parametrize("setting", ["sharing.update_bits=40", "sharing.integer_bits=20"])
def test_bits_that_do_not_fit_are_refused_by_name(setting):
    with pytest.raises(ConfigError, match=r"sharing\.(update|integer)_bits") as caught:
        create_engine(load_config(overrides=[setting]))
    assert "\n" not in str(caught.value)


def test_noise_that_does_not_fit_is_refused_by_name():
    with pytest.raises(ConfigError, match=r"privacy\.noise_multiplier") as caught:
        create_engine(load_config(overrides=["privacy={clip_norm: 10, noise_multiplier: 10}"]))
    assert "\n" not in str(caught.value)


FEDPUB = ("method.name=fedpub", "model.name=gcn-classifier", "evaluation.where=clients")


def test_a_personal_rules_parameters_and_bound_are_those_of_its_settings():
    overrides = [*FEDPUB, "method.similarity=5", "model.hidden=48", "federation.cohort=10"]
    config = load_config(overrides=overrides)
    parameters = plan_of(config).rule
    assert parameters == RoundParameters("fedpub", 10, embedding=48, similarity=5.0)
    assert plan_of(config).error_bound(10, 1.0) < 1e-6
    bounds = [plan_of(config).error_bound(q, 1.0) for q in (0, 1, 2, 10, 30)]
    assert bounds == sorted(bounds) and bounds[-1] < 4e-6
    for engine in ("embedded", "plaintext"):
        with create_engine(load_config(overrides=[*overrides, f"engine.name={engine}"])):
            pass
    poisson = load_config(overrides=[*overrides, "federation.sampling=poisson", "privacy.sensitivity=bounded_weights"])
    create_engine(poisson).close()
    assert plan_of(poisson).error_bound(10, 1.0) == plan_of(config).error_bound(10, 1.0)


def test_a_bound_with_fixed_denominators_allows_for_the_largest_weight_of_everybody():
    fixed = ("federation.sampling=poisson", "privacy={clip_norm: 1.0, sensitivity: bounded_weights}")
    plan = plan_of(load_config(overrides=fixed))
    weight, error = fixed_weight(plan.rule)
    for q in (1, 10, 25):
        expected = plan.vectors.error_bound(q, 0.5, q * error + clip_error(q, q * weight), q * weight)
        assert plan.error_bound(q, 0.5) == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize(
    ("settings", "named"),
    [
        (["engine.name=mpspdz"], ["engine.name = mpspdz"]),
        (["engine.program=faithful"], ["engine.program = faithful"]),
        (["engine.program=scalar-first"], ["engine.program = scalar-first"]),
        (["privacy.clip_norm=1"], ["privacy.clip_norm = 1"]),
        (
            ["privacy={clip_norm: 1, noise_multiplier: 2}", "engine.program=faithful"],
            ["privacy.noise_multiplier = 2", "privacy.clip_norm = 1", "engine.program = faithful"],
        ),
    ],
)
def test_what_a_personal_rule_does_not_go_with_is_refused_by_name(settings, named):
    with pytest.raises(ConfigError, match=r"^method\.name = fedpub gives every client its own model") as caught:
        create_engine(load_config(overrides=[*FEDPUB, *settings]))
    assert all(name in str(caught.value) for name in named) and "\n" not in str(caught.value)


def of_method(name):
    """The method's settings, with the first network that it can train."""
    networks, where = METHODS[name].networks or ("gcn",), "clients" if METHODS[name].personal else "whole_graph"
    return load_config(overrides=[f"method.name={name}", f"model.name={networks[0]}", f"evaluation.where={where}"])


@pytest.mark.parametrize("name", METHODS)
def test_every_method_that_can_be_named_has_a_rule_or_aggregates_nothing(name):
    config = of_method(name)
    with create_engine(config) as engine:
        assert engine.plan == plan_of(config)
        assert (type(engine) is NoEngine) == (METHODS[name].rule is None)
    if METHODS[name].rule is not None:
        assert plan_of(config).rule.rule == METHODS[name].rule


def test_every_rule_belongs_to_a_method():
    assert {method.rule for method in METHODS.values()} - {None} == RULES.keys()


def test_a_clip_norm_too_small_for_the_format_is_refused():
    """Norms are compared with the clip norm times powers of two up to 2^20."""
    config = load_config(overrides=["privacy.clip_norm=1e-9"])
    with pytest.raises(ConfigError, match=r"privacy\.clip_norm = 1e-09 is too small: .* at least 6\.1"):
        create_engine(config)


@pytest.mark.parametrize("chosen", ["engine.name=mpspdz", "engine.program=faithful"])
def test_no_epsilon_is_stated_for_arithmetic_that_the_proof_does_not_cover(chosen):
    noisy = ["privacy.clip_norm=1", "privacy.noise_multiplier=2"]
    assert plan_of(load_config(overrides=noisy)).privacy is not None
    assert plan_of(load_config(overrides=[*noisy, "engine.program=scalar-first"])).privacy is not None
    assert plan_of(load_config(overrides=[*noisy, chosen])).privacy is None
    with pytest.raises(ConfigError, match=r"^privacy\.epsilon_budget: no epsilon can be stated: none is proven"):
        plan_of(load_config(overrides=[*noisy, chosen, "privacy.epsilon_budget=50"]))


def test_training_alone_has_no_round_to_compute_or_to_measure():
    plan = plan_of(of_method("local"))
    assert plan.parameters is plan.privacy is None
    with pytest.raises(ConfigError, match=r"^method\.name: this method aggregates nothing") as caught:
        _ = plan.rule
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("overrides", "expected"),
    [
        (["federation.cohort=3"], 3),
        (["clients.count=60", "federation.cohort=30"], 4),
        (["clients.count=60", "federation={cohort: 30, min_cohort: 7}"], 7),
        (["federation={cohort: 3, min_cohort: 0}"], 0),
        (["federation={cohort: 3, sampling: poisson}"], 0),
        (["clients.count=60", "federation.cohort=30", "privacy={clip_norm: 1, noise_multiplier: 1}"], 4),
        (
            [
                "clients.count=60",
                "federation.cohort=30",
                "privacy={clip_norm: 1, noise_multiplier: 1, sensitivity: bounded_weights}",
            ],
            30,
        ),
    ],
)
def test_a_round_goes_on_with_as_few_as_its_privacy_and_its_members_bear(overrides, expected):
    config = load_config(overrides=[*overrides, "evaluation.where=nowhere"])
    assert plan_of(config).min_cohort == create_engine(config).plan.min_cohort == expected


def test_noise_covers_every_size_that_the_settings_allow():
    noisy = "privacy={clip_norm: 1, noise_multiplier: 1, sensitivity: bounded_weights}"
    base = ["clients.count=60", noisy]
    plans = [
        plan_of(load_config(overrides=[*base, f"federation={{cohort: 30{more}}}"])).sensitivity
        for more in ("", ", min_cohort: 30", ", min_cohort: 15")
    ]
    assert plans[0] == plans[1] < plans[2]
    parameters = plan_of(load_config(overrides=[*base, "federation.cohort=30"])).rule
    assert plans[2] == pytest.approx(dropout_bound(parameters, 15), rel=1e-3)


@pytest.mark.parametrize(
    ("overrides", "named"),
    [
        (["federation={cohort: 3, min_cohort: 4}"], "federation.min_cohort = 4 is larger than federation.cohort = 3"),
        (["federation={cohort: 3, min_cohort: -1}"], "federation.min_cohort"),
        (
            [
                "federation={cohort: 3, min_cohort: 1, sampling: poisson}",
                "privacy={clip_norm: 1, noise_multiplier: 1}",
            ],
            "federation.min_cohort = 1: with federation.sampling = poisson and noise every cohort's round is released",
        ),
    ],
)
def test_a_least_cohort_that_cannot_be_is_refused_by_name(overrides, named):
    with pytest.raises(ConfigError) as caught:
        load_config(overrides=overrides)
    assert named in str(caught.value)
