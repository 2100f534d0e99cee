"""Settings: layers, refusals of one line that name the setting, and the way through a file and back."""

from __future__ import annotations

from pathlib import Path

import pydantic
import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

import orchestrator
from orchestrator.config import Config, load_config, preset_names
from orchestrator.errors import ConfigError

NOISY = "privacy={clip_norm: 1, noise_multiplier: 1"
FILES = "data={name: files, files: {nodes: n.csv, edges: e.txt, id: id, label: y, sensitive: s}}"


def refusal(*overrides: str, **layers) -> str:
    with pytest.raises(ConfigError) as caught:
        load_config(overrides=overrides, **layers)
    message = str(caught.value)
    assert "\n" not in message and message
    assert caught.value.exit_status == 2
    return message


@pytest.fixture
def write(tmp_path):
    def write(text: str) -> Path:
        path = tmp_path / "settings.yaml"
        path.write_text(text)
        return path

    return write


@pytest.mark.parametrize(
    ("override", "named"),
    [
        ("nonsense=1", "nonsense: unknown"),
        ("federation.round=1", "federation.round: unknown"),
        ("data.synthetic.node=1", "data.synthetic.node: unknown"),
        ("federation=3", "federation: "),
        ("federation.rounds=many", "federation.rounds: "),
        ("federation.rounds=1.5", "federation.rounds: "),
        ("federation.rounds=", "federation.rounds: "),
        ("federation.rounds=yes", "federation.rounds: "),
        ("federation.rounds=[1]", "federation.rounds: "),
        ("federation.rounds=0", "federation.rounds: "),
        ("federation.cohort=0", "federation.cohort: "),
        ("federation.cohort=31", "federation.cohort = 31 is larger than clients.count = 30"),
        ("federation.sampling=uniform", "federation.sampling: "),
        ("federation={sampling: poisson, cohort: 31}", "federation.cohort = 31 is larger than clients.count = 30"),
        ("seed=-1", "seed: "),
        ("seed=true", "seed: "),
        ("method.alpha=-1e-9", "method.alpha: "),
        ("method.alpha=.nan", "method.alpha: "),
        ("method.lam=.inf", "method.lam: "),
        ("method.lam={a: 1}", "method.lam: "),
        ("method.lam=65", "method.lam: "),
        ("method.tau=0", "method.tau: "),
        ("method.tau=0.001", "method.tau = 0.001 is too small for method.lam"),
        ("method.name=nearby", "method.name: "),
        ("model.dropout=1", "model.dropout: "),
        ("data.name=files", "data.name is files: data.files must say"),
        ("data.name=imagenet", "data.name: "),
        ("data.scaling=raw", "data.scaling: "),
        ("data.split=[0.5, 0.5]", "data.split.2: "),
        ("data.split=[0.5, 0.25, 0.2]", "data.split = [0.5, 0.25, 0.2]: expected three shares that sum to 1"),
        ("data.split=[0, 0.5, 0.5]", "data.split = [0.0, 0.5, 0.5]: "),
        ("data.split=[1.5, -0.5, 0]", "data.split = [1.5, -0.5, 0.0]: "),
        ("clients.partition=stars", "clients.partition: "),
        ("clients={partition: overlapping, count: 12}", "clients.count = 12 is no multiple of clients.copies = 5"),
        ("clients.partition=whole", "clients.partition = whole makes one client, but clients.count = 30"),
        ("clients.copies=0", "clients.copies: "),
        ("clients.share=0", "clients.share: "),
        ("clients.tolerance=-1", "clients.tolerance: "),
        ("data.files.nodes=n.csv", "data.files.label: must be given"),
        ("data.dir=5", "data.dir: "),
        (FILES.replace("label: y", "label: 5"), "data.files.label: expected text, got 5; put it in quotes"),
        (FILES.replace("label: y", "label: no"), "data.files.label: "),
        ("privacy.noise_multiplier=1", "privacy.noise_multiplier > 0 needs privacy.clip_norm"),
        ("privacy.noise_multiplier=-1", "privacy.noise_multiplier: "),
        ("privacy.clip_norm=0", "privacy.clip_norm: "),
        ("privacy.noise=both", "privacy.noise: "),
        ("privacy.noise=off", "privacy.noise: "),
        ("privacy.delta=0", "privacy.delta: "),
        ("privacy.delta=1", "privacy.delta: "),
        ("privacy.accountant=gdp", "privacy.accountant: "),
        ("privacy.accountant=paper", "privacy.accountant = paper is valid for no run"),
        ("privacy.sensitivity=1", "privacy.sensitivity: "),
        ("privacy.epsilon_budget=0", "privacy.epsilon_budget: "),
        ("privacy.epsilon_budget=4", "privacy.epsilon_budget needs privacy.noise_multiplier > 0"),
        (f"{NOISY}, epsilon_budget: 4, accountant: null}}", "privacy.epsilon_budget needs privacy.accountant"),
        ("privacy.clip=quantile", "privacy.clip = quantile needs privacy.clip_norm"),
        ("privacy.quantile.target=1", "privacy.quantile.target: "),
        ("privacy.clip_norm=nan", "privacy.clip_norm: "),
        ("sharing.weight_bits=33", "sharing.weight_bits: "),
        ("engine.name=psychic", "engine.name: "),
        ("engine.ports=[7000, 7001]", "engine.ports.2: "),
        ("engine.ports=[7000, 7001, 70000]", "engine.ports.2: "),
        ("engine.startup_timeout_sec=0", "engine.startup_timeout_sec: "),
        ("engine.timeout_sec=0", "engine.timeout_sec: "),
        ("engine.training_timeout_sec=1e300", "engine.training_timeout_sec: "),
        ("run.tensorboard=5", "run.tensorboard: "),
        ("federation.rounds", "--set federation.rounds: expected name=value"),
        ("=3", "--set =3: expected name=value"),
        (".=3", "--set .=3: expected name=value"),
        ("federation..rounds=3", "--set federation..rounds=3: expected name=value"),
        ("method.lam=[1", "--set method.lam=[1: not valid YAML"),
    ],
)
def test_a_bad_setting_is_refused_in_one_line_that_names_it(override, named):
    assert refusal(override).startswith(named)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("federation: {rounds: 5", "not valid YAML"),
        ("\tfederation:", "not valid YAML"),
        ("federation: {rounds: 5, rounds: 6}", "'rounds' stands twice"),
        ("seed: 1\nfederation: {cohort: 2}\nseed: 2", "'seed' stands twice"),
        ("? [a, b]\n: 5", "not valid YAML"),
        ("seed: !!python/object/apply:os.getcwd []", "not valid YAML"),
        ("- seed", "expected a mapping"),
        ("seed", "expected a mapping"),
    ],
)
def test_a_bad_file_is_refused_in_one_line_that_names_it(write, text, said):
    path = write(text)
    message = refusal(file=path)
    assert message.startswith(f"{path}: ") and said in message


@pytest.mark.parametrize(
    ("text", "named"),
    [("1: 2", "1: "), ("federation: {1: 2}", "federation.1: "), ("federation:\n", "federation: ")],
)
def test_keys_that_are_no_names_and_empty_sections_are_refused(write, text, named):
    assert refusal(file=write(text)).startswith(named)


def test_a_file_that_cannot_be_read_is_named(tmp_path):
    missing = tmp_path / "none.yaml"
    assert str(missing) in refusal(file=missing)
    assert str(tmp_path) in refusal(file=tmp_path)
    (tmp_path / "binary.yaml").write_bytes(b"\xff\xfe\xff")
    assert "binary.yaml" in refusal(file=tmp_path / "binary.yaml")


def test_an_unknown_preset_is_refused_with_the_known_ones():
    assert refusal(presets=["nab"]) == "unknown preset 'nab' (did you mean nba?)"
    message = refusal(presets=["zzzzzz"])
    assert "'zzzzzz'" in message and all(name in message for name in preset_names())


@pytest.mark.parametrize(
    ("privacy", "named"),
    [
        (f"{NOISY}, epsilon_budget: 4}}", "privacy.epsilon_budget: no accountant is valid for federation.sampling"),
        (f"{NOISY}, sensitivity: bounded_weights}}", "privacy.sensitivity = bounded_weights is not proven"),
    ],
)
def test_no_claim_is_made_for_sampling_with_replacement(privacy, named):
    assert refusal("federation.sampling=with_replacement", privacy).startswith(named)


def test_several_faults_are_all_named_in_one_line():
    message = refusal("federation.rounds=0", "method.tau=-1", "nonsense=1")
    assert all(name in message for name in ("federation.rounds", "method.tau", "nonsense"))


def test_an_empty_file_changes_nothing(write):
    assert load_config(file=write("# nothing\n")) == load_config() == Config()


def test_layers_override_each_other_in_order(write):
    path = write("federation: {rounds: 7}\nmethod: {tau: 2}\n")
    assert load_config(["nba", "german"]).method.local_epochs == load_config(["german"]).method.local_epochs
    assert load_config(["german", "nba"]).data.name == "nba"
    layered = load_config(["nba"], path, ["federation.cohort=5", "method.tau=3", "method.tau=1"])
    assert layered.federation.rounds == 7  # the file wins over the preset
    assert layered.federation.cohort == 5  # and leaves the other settings of the section alone
    assert layered.method.tau == 1  # the last --set wins
    assert layered.method.lam == load_config(["nba"]).method.lam
    assert layered.model.hidden == Config().model.hidden


@pytest.mark.parametrize("text", ["1e-4", "1E-4", "1.e-4", "0.1e-3", ".1e-3", "1.0e-4", "0.0001"])
def test_a_number_with_an_exponent_is_a_number(text, write):
    assert load_config(overrides=[f"method.alpha={text}"]).method.alpha == 1e-4
    assert load_config(file=write(f"method: {{alpha: {text}}}")).method.alpha == 1e-4
    assert load_config(overrides=["federation.rounds=1e2"]).federation.rounds == 100


@pytest.mark.parametrize(
    "text", ["-1", "1e-4", "nan", "inf", "007", "no", "2020-01-01", "null", "~", "", " x ", "a: b"]
)
def test_quoted_text_stays_text(text, write):
    quoted = yaml.safe_dump(text, default_style='"').strip()
    config = load_config(overrides=[FILES, f"data.files.missing_label={quoted}"])
    assert config.data.files.missing_label == text
    assert load_config(file=write(config.to_yaml())) == config


@given(st.text(st.characters(exclude_categories=["Cs"])), st.floats(1e-300, 1e6), st.integers(0, 2**63 - 1))
def test_every_configuration_survives_the_way_through_text(tmp_path_factory, text, number, seed):
    config = load_config(overrides=[FILES])
    files = config.data.files.model_copy(update={"label": text, "missing_label": f"{number!r}", "drop": (text, "b")})
    config = Config(
        seed=seed,
        data=config.data.model_copy(update={"files": files, "dir": Path("raw data/ü")}),
        method={"tau_fair": number},
        engine={"ports": (0, 1, 65535)},
        privacy={"clip_norm": number, "noise_multiplier": number},
    )
    path = tmp_path_factory.getbasetemp() / "config.yaml"
    path.write_text(config.to_yaml(), encoding="utf-8")
    assert load_config(file=path) == config


@pytest.mark.parametrize("name", preset_names())
def test_every_shipped_preset_loads(name):
    config = load_config([name])
    assert config.federation.cohort <= config.clients.count
    if config.method.name == "f2gnn":  # whose reference code it is
        assert load_config([name, "reference"]).method.score == "reciprocal"


def test_the_paper_preset_equals_the_defaults_but_for_its_cohort_and_the_preparation_of_data():
    prepared = ["data.scaling=pooled", "data.stratified=false"]
    assert load_config(["paper"]) == load_config(overrides=["federation.cohort=3", *prepared])
    assert (Config().federation.cohort, Config().data.scaling, Config().data.stratified) == (10, "by_client", True)


@pytest.mark.parametrize("preset", [name for name in preset_names() if name != "fair"])  # which is for any data
def test_every_preset_says_how_data_are_prepared(preset):
    """As in what it reproduces, so its figures do not change with the defaults."""
    data = load_config([preset]).data
    assert data.scaling in ("pooled", "row_normalised", "none") and not data.stratified


def leaves(tree, prefix=""):
    for key, value in tree.items():
        if isinstance(value, dict):
            yield from leaves(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", value


def preset_leaves(name):
    folder = Path(orchestrator.__file__).parent / "presets"
    return dict(leaves(yaml.safe_load((folder / f"{name}.yaml").read_text())))


def test_the_reference_preset_flips_every_deviation_that_the_paper_preset_names():
    paper, reference = preset_leaves("paper"), preset_leaves("reference")
    assert paper.keys() == reference.keys()
    common = ["data.scaling", "data.stratified", "federation.cohort"]
    assert [key for key in paper if paper[key] == reference[key]] == common
    loaded = dict(leaves(load_config(["reference"]).model_dump()))
    defaults = dict(leaves(Config().model_dump()))
    assert {key for key in defaults if defaults[key] != loaded[key]} == reference.keys()


@pytest.mark.parametrize("path", ["", "data.", "data.synthetic.", "method.", "engine."])
def test_a_configuration_is_frozen(path):
    section = load_config()
    for part in path.split(".")[:-1]:
        section = getattr(section, part)
    with pytest.raises(pydantic.ValidationError, match="frozen"):
        setattr(section, next(iter(type(section).model_fields)), 1)


def test_a_preset_lies_on_those_that_it_names():
    config = load_config(["fedsage-plus-cora-louvain-5"])
    assert (config.method.name, config.model.name) == ("fedsage+", "sage")
    assert (config.data.name, config.clients.partition, config.clients.count) == ("cora", "louvain", 5)
    below = load_config(["fedsage-cora-louvain-5"])
    assert (
        config.method.learning_rate == below.method.learning_rate
        and config.federation.rounds == below.federation.rounds
    )


@pytest.mark.parametrize("preset", [name for name in preset_names() if name.startswith("fed")])
def test_presets_of_personalised_methods_are_whole_and_valid(preset):
    config = load_config([preset])
    assert preset.endswith(f"-{config.data.name}-{config.clients.partition}-{config.clients.count}")
    assert config.federation.cohort == config.clients.count and config.evaluation.where == "clients"


def test_parts_of_presets_are_no_presets():
    assert not [name for name in preset_names() if name.startswith("_")]
    with pytest.raises(ConfigError, match="unknown preset '_fedpub'"):
        load_config(["_fedpub"])


@pytest.mark.parametrize(
    ("overrides", "said"),
    [
        (["privacy.bands=2"], "privacy.bands = 2: noise of several rounds hides a client that is in one of them"),
        (["privacy.bands=4", "federation={sampling: cyclic, cohort: 8}"], "privacy.bands = 4: noise of several rounds"),
        (
            ["privacy={bands: 2, clip: quantile, clip_norm: 1}", "federation={sampling: cyclic, cohort: 8}"],
            "privacy.bands = 2: noise of several rounds needs one bound",
        ),
    ],
)
def test_bands_need_turns_that_are_as_far_apart_and_one_clip_bound(overrides, said):
    assert said in refusal("clients.count=30", *overrides)
    assert load_config(overrides=["privacy.bands=1"]).privacy.bands == 1
    assert load_config(overrides=["clients.count=30", "privacy.bands=3", "federation={sampling: cyclic, cohort: 8}"])
