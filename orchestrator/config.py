"""One frozen, validated tree of settings, from layered presets, a YAML file and ``--set`` overrides.

Layers, later ones win: the defaults below, each ``--preset`` in order, ``--config FILE``, each ``--set a.b=value``.
A shipped preset may lie on others, which it names under ``presets``.
Unknown keys are refused, and so is a key that stands twice. Units stand in the names: ``_bits``, ``_sec``; everything
else is dimensionless.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from importlib import resources
from pathlib import Path
from typing import Annotated, Any, Literal

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError, ValidationInfo, field_validator, model_validator

from orchestrator.errors import ConfigError
from orchestrator.registry import METHODS

__all__ = ["Config", "load_config", "preset_names", "validated"]


class _Section(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    @field_validator("*", mode="before")
    @classmethod
    def _flags_are_no_numbers(cls, value: Any, info: ValidationInfo) -> Any:
        """YAML reads yes, no, on and off as flags, and Python takes those for 1 and 0."""
        if isinstance(value, bool) and cls.model_fields[info.field_name or ""].annotation is not bool:
            raise ValueError(f"expected no flag, got {value}; put text in quotes")
        return value


class CsvConfig(_Section):
    """A generic pair of a node table and an edge list (``data.name: csv``)."""

    nodes: Path = Field(description="comma-separated table with a header, one row a node")
    edges: Path = Field(description="two node ids a line, separated by blanks, tabs or a comma")
    id: str = Field(description="column of the node id")
    label: str = Field(description="column of the label; two values")
    sensitive: str = Field(description="column of the sensitive attribute; two values")
    missing_label: str | None = Field(None, description="the label value that means 'unknown'")
    drop: tuple[str, ...] = Field((), description="columns that are no features")


class SyntheticConfig(_Section):
    """Parameters of the synthetic generator (``data.name: synthetic``)."""

    nodes: int = Field(2000, ge=10, description="number of nodes")
    edges: int = Field(8000, ge=1, description="undirected edges")
    features: int = Field(32, ge=1, description="features of a node")
    degree_exponent: float = Field(2.5, gt=2.0, description="power law of the expected degrees")
    sensitive_rate: float = Field(0.45, gt=0, lt=1, description="share of nodes with s = 1")
    positive_rate: float = Field(0.5, gt=0, lt=1, description="share of nodes with y = 1")
    label_bias: float = Field(0.1, ge=-0.9, le=0.9, description="P(y=1|s=1) - P(y=1|s=0)")
    label_homophily: float = Field(0.6, gt=0, lt=1, description="weight of edges within one label, against across")
    group_homophily: float = Field(0.9, gt=0, lt=1, description="weight of edges within one group, against across")
    missing_rate: float = Field(0.0, ge=0, lt=1, description="share of nodes whose label is missing")
    signal: float = Field(1.0, ge=0, description="distance between the feature means of the two labels")
    group_signal: float = Field(0.5, ge=0, description="distance between the feature means of the two groups")


class DataConfig(_Section):
    """The graph: where it comes from, and what is done with it before it is cut into clients."""

    name: Literal["synthetic", "pokec-z", "pokec-n", "nba", "german", "cora", "citeseer", "csv", "own"] = Field(
        "synthetic",
        description="synthetic: drawn as data.synthetic says; csv: read as data.csv says; own: given in Python, and "
        "the rest of data has no effect; others: by name",
    )
    dir: Path | None = Field(
        None,
        description="folder with the raw files, or what the paths of data.csv are relative to; null: the folder of "
        "`safegnn data fetch`, or the working directory",
    )
    nodes: Literal["labelled_component", "all"] = Field(
        "labelled_component",
        description="labelled_component: drop nodes without label and their edges, keep the largest component; "
        "all: keep every node and mask labels",
    )
    features: Literal["standardised", "row_normalised"] = Field(
        "standardised",
        description="standardised: constant ones go, others get mean 0 and variance 1; "
        "row_normalised: a node's features are divided by their sum",
    )
    split: tuple[float, float, float] = Field(
        (0.5, 0.25, 0.25), description="shares of the labelled nodes for training, validation and test; they sum to 1"
    )
    csv: CsvConfig | None = None
    synthetic: SyntheticConfig = SyntheticConfig()

    @model_validator(mode="after")
    def _csv_is_described(self) -> DataConfig:
        if self.name == "csv" and self.csv is None:
            raise ValueError("data.name is csv: data.csv must say nodes, edges, id, label and sensitive")
        return self

    @model_validator(mode="after")
    def _split_is_whole(self) -> DataConfig:
        if self.split[0] <= 0 or min(self.split) < 0 or abs(sum(self.split) - 1) > 1e-9:
            raise ValueError(
                f"data.split = {list(self.split)}: expected three shares that sum to 1, of which only the validation's "
                "and the test's may be 0"
            )
        return self


class ClientsConfig(_Section):
    """How clients are cut out of the graph; see `orchestrator.graphs.partition`."""

    count: int = Field(30, ge=1, description="number of clients")
    partition: Literal["ego", "disjoint", "overlapping", "louvain", "whole", "own"] = Field(
        "ego",
        description="ego: k-hop networks around training nodes; disjoint: parts of METIS; overlapping: several clients "
        "a part, each with a random share of its nodes; louvain: communities, brought to about equal size; whole: one "
        "client that holds everything; own: graphs given in Python, one a client",
    )
    hops: int = Field(3, ge=0, description="k, of ego")
    ego_sampling: Literal["distinct", "with_replacement"] = Field(
        "distinct", description="of ego; distinct: no two clients have the same ego; with_replacement: they may"
    )
    min_nodes: int = Field(1, ge=1, description="of ego: egos whose network is smaller are passed over")
    copies: int = Field(5, ge=1, description="of overlapping: clients a part")
    share: float = Field(0.5, gt=0, le=1, description="of overlapping: share of its part's nodes that a client holds")
    tolerance: int = Field(
        20, ge=0, description="of louvain: nodes by which clients may be larger, and pieces are smaller, than the mean"
    )
    features: Literal["float", "truncated"] = Field(
        "float", description="float: as they are; truncated: towards zero, as the reference code"
    )
    balance_self_loops: bool = Field(False, description="count self-loops as intra-group edges in B")
    batch: int = Field(1, ge=1, description="clients that a process trains together; pays for many small networks")

    @model_validator(mode="after")
    def _partition_fits(self) -> ClientsConfig:
        if self.partition == "overlapping" and self.count % self.copies:
            raise ValueError(
                f"clients.count = {self.count} is no multiple of clients.copies = {self.copies}, as "
                "clients.partition = overlapping needs"
            )
        if self.partition == "whole" and self.count != 1:
            raise ValueError(f"clients.partition = whole makes one client, but clients.count = {self.count}")
        if self.partition == "own" and self.features == "truncated":
            raise ValueError(
                "clients.features = truncated: with clients.partition = own features are as they are given"
            )
        return self


class ModelConfig(_Section):
    """The network that every client trains."""

    name: Literal["gcn", "gcn-classifier", "sage", "own"] = Field(
        "gcn",
        description="gcn: F2GNN's, two classes; gcn-classifier: FED-PUB's, with a nonlinearity after each layer; "
        "sage: GraphSAGE with neighbour sampling; own: a torch module given in Python, for which the rest of model has "
        "no effect",
    )
    hidden: int = Field(64, ge=1, description="units of a hidden layer")
    dropout: float = Field(0.1, ge=0, lt=1, description="probability with which training drops a hidden unit")
    neighbours: int | None = Field(
        5, ge=1, description="of sage: neighbours sampled of each node in training; null: all"
    )


class GeneratorConfig(_Section):
    """The missing-neighbour generator of FedSage+; see `orchestrator.methods.fedsage.neighgen`."""

    hidden_share: float = Field(0.1, gt=0, lt=1, description="h: share of the nodes that is hidden to train on")
    hide_from: Literal["all", "validation"] = Field(
        "all",
        description="whose share is hidden; all: of all nodes; validation: of those outside training and test, as the "
        "reference code",
    )
    encoder_hidden: int = Field(64, ge=1, description="hidden units of the encoder")
    latent: int = Field(128, ge=1, description="length of a node's embedding")
    widths: tuple[Annotated[int, Field(ge=1)], Annotated[int, Field(ge=1)]] = Field(
        (64, 128), description="hidden layers of the feature generator; (256, 2048) in the reference code"
    )
    candidates: int = Field(5, ge=1, description="neighbours generated for a node, of which some are drawn")
    sampler: Literal["random", "first"] = Field(
        "random", description="which candidates are drawn; first: always the first ones, as the reference code"
    )
    dropout: float = Field(0.5, ge=0, lt=1, description="in the encoder")
    learning_rate: float = Field(3e-3, gt=0, description="of Adam")
    weight_decay: float = Field(1e-4, ge=0, description="of Adam: times the weights, added to the gradient")
    local_epochs: int = Field(20, ge=0, description="steps of a client alone, before the exchanges")
    exchanges: int = Field(20, ge=0, description="steps for which the other clients are asked for gradients")
    cross_weight: float = Field(1.0, ge=0, description="alpha: weight of the other clients' features in the loss")


class MethodConfig(_Section):
    """What a client does locally and which rule aggregates; see the README's table of deviations."""

    name: str = Field("f2gnn", description=f"one of {', '.join(METHODS)}")
    local_epochs: int = Field(15, ge=1, description="full-batch steps of Adam whenever a client takes part")
    learning_rate: float = Field(1e-4, gt=0, description="of Adam, and of proximal steps")
    weight_decay: float = Field(1e-4, ge=0, description="of Adam: times the weights, added to the gradient")
    alpha: float = Field(1e-6, ge=0, description="weight of the fairness penalty in the local loss")
    tau_fair: float = Field(4.0, gt=0, description="temperature of the predictions inside the penalty")
    tau_combine: float = Field(1e-3, gt=0, description="temperature of the predictions that are compared")
    lam: float = Field(8.0, ge=0, le=64, description="lambda: weight of the balance weights in the final score")
    tau: float = Field(4.0, gt=0, description="temperature of the final softmax")
    similarity: float = Field(
        3.0,
        gt=0,
        le=12,
        description="tau: scale of the similarities in FED-PUB's softmax; the larger, the less a client takes from "
        "clients that are unlike it",
    )
    penalty: Literal["gaps", "broadcast"] = Field(
        "gaps",
        description="of F2GNN; gaps: those of demographic parity and of equal opportunity, added up; broadcast: the "
        "(n,1) x (n,) products of the reference code",
    )
    eo_denominator: Literal["positives", "group"] = Field(
        "positives",
        description="what a group's part of the equal-opportunity gap is divided by; positives: its nodes with y = 1; "
        "group: all its nodes, as the reference code",
    )
    divergence: Literal["js", "js_distance_over_nodes"] = Field(
        "js",
        description="js: mean over nodes of the base-2 divergence of the predicted Bernoulli distributions; "
        "js_distance_over_nodes: distance between softmaxes of hard predictions over the nodes",
    )
    divergence_local_mode: Literal["eval", "train"] = Field(
        "eval", description="eval: the previous local model predicts without dropout; train: with it"
    )
    score: Literal["penalty", "reciprocal"] = Field(
        "penalty",
        description="the fairness score; penalty: that itself, so unfair clients weigh more; reciprocal: "
        "1/(penalty + 1e-5), so fair ones do",
    )
    score_from: Literal["trained_model", "last_epoch"] = Field(
        "trained_model",
        description="where the penalty is taken for the score; trained_model: after training, without dropout; "
        "last_epoch: the training-mode forward before the last step",
    )
    local_init: Literal["global", "own"] = Field(
        "global",
        description="what a client that never took part starts from; global: the released model alone; own: also a "
        "random local model of its own",
    )
    score_max: float = Field(2.0, gt=0, le=2**20, description="public cap of the fairness score")
    stateful: bool = Field(
        True, description="false: every participation of a client is as its first, without moments or a local model"
    )
    generator: GeneratorConfig = GeneratorConfig()

    mask_penalty: float = Field(0.0, ge=0, description="lambda_1 of FED-PUB: weight of the mask's L1 norm")
    penalty_step: Literal["gradient", "proximal"] = Field(
        "proximal",
        description="how FED-PUB's penalties pull; gradient: as parts of the loss, which Adam scales as it scales all "
        "gradients; proximal: by their proximal steps after each step of Adam",
    )
    mask_threshold: float = Field(
        1e-3, ge=0, description="mask entries below it count as 0 in predictions and embeddings"
    )
    proximal: float = Field(0.0, ge=0, description="lambda_2 of FED-PUB: weight of ||theta - theta_bar||^2")

    @field_validator("name")
    @classmethod
    def _is_known(cls, name: str) -> str:
        if name not in METHODS:
            raise ValueError(f"expected one of {', '.join(METHODS)}, got {name!r}")
        return name

    @model_validator(mode="after")
    def _final_score_fits(self) -> MethodConfig:
        if (self.lam + math.e) / self.tau >= 2**10:
            raise ValueError(
                f"method.tau = {self.tau:g} is too small for method.lam = {self.lam:g}: "
                "(lam + e) / tau must stay below 1024, where the fixed-point arithmetic is exact enough"
            )
        return self


class FederationConfig(_Section):
    """How many rounds there are, and who takes part in them."""

    rounds: int = Field(500, ge=1, description="rounds to train; privacy.epsilon_budget may end training earlier")
    cohort: int = Field(3, ge=1, description="clients sampled per round")
    sampling: Literal["distinct", "with_replacement", "poisson"] = Field(
        "distinct", description="poisson: every client with probability cohort / clients.count, so cohorts vary in size"
    )
    min_cohort: int | None = Field(
        None,
        ge=0,
        description="a round goes on without clients whose upload is missing or refused, as long as so many are left; "
        "null: cohort where noise is scaled to that size (privacy.sensitivity: bounded_weights, distinct cohorts), 0 "
        "with sampling: poisson, else the smaller of cohort and 4",
    )

    @model_validator(mode="after")
    def _least_fits(self) -> FederationConfig:
        if self.min_cohort is not None and self.min_cohort > self.cohort:
            raise ValueError(
                f"federation.min_cohort = {self.min_cohort} is larger than federation.cohort = {self.cohort}"
            )
        return self


class QuantileConfig(_Section):
    """The adaptive clip bound of Andrew et al. (NeurIPS 2021); ``privacy.clip_norm`` is that of the first round."""

    target: float = Field(0.5, gt=0, lt=1, description="share of updates whose norm lies below the bound")
    learning_rate: float = Field(0.2, gt=0, le=10, description="eta of C <- C exp(-eta (share below - target))")
    bit_noise_multiplier: float = Field(
        10.0, gt=0, description="noise of the count of updates below the bound, relative to the count's sensitivity"
    )


class PrivacyConfig(_Section):
    """Client-level differential privacy of the released models; see docs/privacy.md."""

    clip_norm: float | None = Field(
        None, gt=0, description="C, with clip: quantile that of the first round; null: updates are not clipped"
    )
    clip: Literal["fixed", "quantile"] = Field(
        "fixed", description="fixed: C is clip_norm; quantile: from there C follows a private quantile of norms"
    )
    quantile: QuantileConfig = QuantileConfig()
    noise_multiplier: float = Field(0.0, ge=0, description="sigma, relative to the L2 sensitivity; 0: no noise")
    noise: Literal["each_full", "split"] = Field(
        "each_full", description="each_full: each server's noise alone is sigma; split: sigma/sqrt(2) each, the paper"
    )
    sensitivity: Literal["worst_case", "bounded_weights"] = Field(
        "worst_case", description="worst_case: 2 C; bounded_weights: from the public ranges of the weights"
    )
    accountant: Literal["rdp", "pld", "paper"] | None = Field(
        "rdp", description="of the epsilon that is stated; paper is refused, see docs/privacy.md; null: none is stated"
    )
    delta: float = Field(1e-5, gt=0, lt=1, description="of (epsilon, delta), for a client's whole data")
    epsilon_budget: float | None = Field(
        None, gt=0, description="training stops before a round that would exceed it; null: no limit"
    )

    @model_validator(mode="after")
    def _fits_together(self) -> PrivacyConfig:
        if self.noise_multiplier > 0 and self.clip_norm is None:
            raise ValueError("privacy.noise_multiplier > 0 needs privacy.clip_norm: noise is scaled by the clip bound")
        if self.clip == "quantile" and self.clip_norm is None:
            raise ValueError("privacy.clip = quantile needs privacy.clip_norm: the bound of the first round")
        if self.epsilon_budget is not None and self.noise_multiplier == 0:
            raise ValueError(
                "privacy.epsilon_budget needs privacy.noise_multiplier > 0: without noise epsilon is infinite"
            )
        if self.accountant == "paper":
            raise ValueError(
                "privacy.accountant = paper is valid for no run; `safegnn account --accountant paper` compares with it"
            )
        if self.epsilon_budget is not None and self.accountant is None:
            raise ValueError("privacy.epsilon_budget needs privacy.accountant: nothing else bounds epsilon")
        return self


class SharingConfig(_Section):
    """Fixed point of the vectors in Z_2^64; see `orchestrator.mpc.fixed_point.VectorFormat`."""

    update_bits: int = Field(25, ge=1, description="fractional bits of the updates")
    weight_bits: int = Field(32, ge=1, le=32, description="fractional bits of the weights")
    integer_bits: int = Field(6, ge=1, description="model parameters and update norms stay below 2^integer_bits")


_Port = Annotated[int, Field(ge=0, le=65535)]


class EngineConfig(_Section):
    """What aggregates the clients' updates."""

    name: Literal["embedded", "plaintext", "mpspdz"] = Field(
        "embedded",
        description="embedded: two servers on secret shares; mpspdz: the same by an installed MP-SPDZ; plaintext: "
        "float64, without any protection",
    )
    program: Literal["assisted", "scalar-first", "faithful"] = Field(
        "assisted",
        description="assisted: clients supply what lets the servers scale updates alone; scalar-first: the servers do "
        "without; faithful: every element is clipped, then weighed, as in the paper's text",
    )
    protocol: Literal["semi2k", "dealer-ring"] = Field(
        "semi2k", description="of mpspdz; semi2k: two parties and oblivious transfer; dealer-ring: with a dealer"
    )
    mpspdz_home: Path | None = Field(
        None, description="folder of the MP-SPDZ installation; null: $MPSPDZ_HOME, else third_party/MP-SPDZ"
    )
    preprocessing: Literal["ot", "dealer"] = Field(
        "ot",
        description="of embedded; ot: by the two servers alone, from oblivious transfer; dealer: by a third process",
    )
    timeout_sec: float = Field(60.0, gt=0, le=1e6, description="longest silence of a peer within a phase")
    training_timeout_sec: float = Field(3600.0, gt=0, le=1e6, description="longest local training of one cohort")
    client_processes: int = Field(2, ge=1, description="processes among which the simulated clients are divided")
    ports: tuple[_Port, _Port, _Port] | None = Field(None, description="server 0, server 1, dealer; null: free ones")
    certificates: Path | None = Field(
        None, description="folder that `safegnn certs` wrote; null: certificates for this session only"
    )


class EvaluationConfig(_Section):
    """What a round's metrics are of. Evaluation is outside the threat model: somebody sees its results."""

    where: Literal["whole_graph", "clients"] = Field(
        "whole_graph",
        description="whole_graph: utility and fairness of the global model, by a holder of the whole graph; clients: "
        "every client on its own nodes, mean over the clients",
    )
    model: Literal["released", "trained"] = Field(
        "released",
        description="with where: clients; released: what the round gave the client; trained: what the client has after "
        "its local training, before aggregation, as FED-PUB's code reports it",
    )


class RunConfig(_Section):
    """What a run leaves behind."""

    dir: Path = Field(Path("runs"), description="folder in which every run makes a folder of its own")
    tensorboard: bool = Field(
        False, description="also write TensorBoard logs into it; needs the package's extra, safegnn[tensorboard]"
    )
    checkpoint_rounds: int = Field(
        1, ge=1, description="rounds between checkpoints; the last round has one in any case"
    )


class Config(_Section):
    """The whole tree."""

    seed: int = Field(
        31,
        ge=0,
        description="what all reproducible randomness derives from: graph, split, clients, cohorts, training; secrets, "
        "masks and the noise of privacy do not. Whoever knows it knows every cohort",
    )
    data: DataConfig = DataConfig()
    clients: ClientsConfig = ClientsConfig()
    model: ModelConfig = ModelConfig()
    method: MethodConfig = MethodConfig()
    federation: FederationConfig = FederationConfig()
    privacy: PrivacyConfig = PrivacyConfig()
    sharing: SharingConfig = SharingConfig()
    engine: EngineConfig = EngineConfig()
    evaluation: EvaluationConfig = EvaluationConfig()
    run: RunConfig = RunConfig()

    @model_validator(mode="after")
    def _cohort_fits(self) -> Config:
        if self.federation.sampling != "with_replacement" and self.federation.cohort > self.clients.count:
            raise ValueError(
                f"federation.cohort = {self.federation.cohort} is larger than clients.count = {self.clients.count}"
            )
        return self

    @model_validator(mode="after")
    def _method_fits(self) -> Config:
        name, method = self.method.name, METHODS[self.method.name]
        if method.networks and self.model.name not in method.networks:
            raise ValueError(
                f"model.name = {self.model.name}: method.name = {name} trains {' or '.join(method.networks)} only"
            )
        if method.rule is None and (self.privacy.noise_multiplier > 0 or self.privacy.clip_norm is not None):
            raise ValueError(f"method.name = {name} releases nothing: leave privacy.clip_norm and noise_multiplier out")
        if method.personal:
            if self.evaluation.where != "clients":
                raise ValueError(f"method.name = {name} makes no global model: set evaluation.where to clients")
            if self.federation.sampling == "with_replacement":
                raise ValueError(
                    f"federation.sampling = with_replacement: with method.name = {name} clients are distinct"
                )
            if not self.method.stateful:
                raise ValueError(f"method.stateful = false: with method.name = {name} every client keeps its own model")
        return self

    @model_validator(mode="after")
    def _privacy_fits_the_sampling(self) -> Config:
        privacy, sampling = self.privacy, self.federation.sampling
        if sampling == "with_replacement":
            if privacy.epsilon_budget is not None:
                raise ValueError(
                    "privacy.epsilon_budget: no accountant is valid for federation.sampling = with_replacement"
                )
            if privacy.sensitivity == "bounded_weights" and privacy.noise_multiplier > 0:
                raise ValueError(
                    "privacy.sensitivity = bounded_weights is not proven for federation.sampling = with_replacement, "
                    "where one client may hold several places"
                )
        if sampling == "poisson" and self.federation.min_cohort and privacy.noise_multiplier > 0:
            raise ValueError(
                f"federation.min_cohort = {self.federation.min_cohort}: with federation.sampling = poisson and noise "
                "every cohort's round is released, however small; whether one is would show who takes part"
            )
        if sampling == "distinct" and privacy.accountant == "pld" and privacy.noise_multiplier > 0:
            raise ValueError(
                "privacy.accountant = pld needs federation.sampling = poisson: there is no privacy loss distribution "
                "for cohorts of fixed size"
            )
        return self

    def changed(self, **sections: Any) -> Config:
        """These settings with some replaced, checked again as a whole.

        Args:
            sections: by name of a section, the settings in it that change; or the seed.

        Raises:
            ConfigError: the result does not fit together, naming each setting at fault.
        """
        tree = self.model_dump()
        _merge(tree, sections)
        return validated(tree)

    def to_yaml(self) -> str:
        """The whole tree as text that `load_config` reads back as the same configuration."""
        return yaml.dump(self.model_dump(mode="json"), Dumper=_Dumper, sort_keys=False)


class _Loader(yaml.SafeLoader):
    """YAML 1.1, except that ``1e-4`` is a number, as everybody who writes it means, and that no key stands twice."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        names = [key.value for key, _ in node.value if isinstance(key, yaml.ScalarNode)]
        for name in names:
            if names.count(name) > 1:
                raise yaml.constructor.ConstructorError(None, None, f"'{name}' stands twice", node.start_mark)
        return super().construct_mapping(node, deep)


class _Dumper(yaml.SafeDumper):
    """Quotes the text that `_Loader` would take for a number."""


for _yaml in (_Loader, _Dumper):
    _yaml.add_implicit_resolver(
        "tag:yaml.org,2002:float",
        re.compile(r"[-+]?([0-9][0-9_]*(\.[0-9_]*)?|\.[0-9][0-9_]*)[eE][-+]?[0-9]+$"),
        list("-+.0123456789"),
    )


def preset_names() -> list[str]:
    """Names of the presets that ship with the package; parts of presets, whose files begin with _, are none."""
    folder = resources.files("orchestrator") / "presets"
    names = (entry.name.removesuffix(".yaml") for entry in folder.iterdir() if entry.name.endswith(".yaml"))
    return sorted(name for name in names if not name.startswith("_"))


def load_config(presets: Sequence[str] = (), file: Path | None = None, overrides: Sequence[str] = ()) -> Config:
    """Merge the layers and validate the result.

    Args:
        presets: names of shipped presets, e.g. ``("nba", "reference")``.
        file: a YAML file with any part of the tree.
        overrides: ``"federation.rounds=50"``; the value is read as YAML.

    Raises:
        ConfigError: naming the layer and the setting at fault.
    """
    merged: dict[str, Any] = {}
    for name in presets:
        if name not in preset_names():
            raise ConfigError(f"unknown preset '{name}'; there are: {', '.join(preset_names())}")
        _merge(merged, _preset(name))
    if file is not None:
        try:
            text = file.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise ConfigError(f"{file}: cannot be read as a configuration: {error}") from error
        _merge(merged, _layer(text, str(file)))
    for override in overrides:
        path, equals, value = override.partition("=")
        keys = path.strip().split(".")
        if not equals or not all(keys):
            raise ConfigError(f"--set {override}: expected name=value, e.g. federation.rounds=50")
        tree = _parse(value, f"--set {override}")
        for key in reversed(keys):
            tree = {key: tree}
        _merge(merged, tree)
    return validated(merged)


def validated(tree: Mapping[str, Any]) -> Config:
    """The configuration that a tree of plain values describes. Raises ConfigError naming each setting at fault."""
    try:
        return Config.model_validate(tree)
    except ValidationError as error:
        raise ConfigError("; ".join(_line(item) for item in error.errors())) from None


def _preset(name: str) -> dict[str, Any]:
    """A shipped preset upon those that it names under ``presets``."""
    text = (resources.files("orchestrator") / "presets" / f"{name}.yaml").read_text(encoding="utf-8")
    own = _layer(text, f"preset {name}")
    merged: dict[str, Any] = {}
    for below in own.pop("presets", ()):
        _merge(merged, _preset(below))
    _merge(merged, own)
    return merged


def _layer(text: str, where: str) -> dict[str, Any]:
    tree = _parse(text, where)
    if tree is None:
        return {}
    if not isinstance(tree, dict):
        raise ConfigError(f"{where}: expected a mapping of sections, e.g. 'federation: {{rounds: 50}}'")
    return tree


def _parse(text: str, where: str) -> Any:
    try:
        return yaml.load(text, _Loader)
    except (yaml.YAMLError, ValueError) as error:  # ValueError: a date that does not exist
        raise ConfigError(f"{where}: not valid YAML: {' '.join(str(error).split())}") from None


def _merge(base: dict[str, Any], layer: Mapping[str, Any]) -> None:
    for key, value in layer.items():
        if isinstance(value, Mapping) and isinstance(base.get(key), dict):
            _merge(base[key], value)
        else:
            base[key] = dict(value) if isinstance(value, Mapping) else value


def _line(item: Mapping[str, Any]) -> str:
    where, kind, got = ".".join(str(part) for part in item["loc"]), item["type"], item["input"]
    if kind == "extra_forbidden":
        return f"{where}: unknown setting"
    if kind == "missing":
        return f"{where}: must be given"
    if kind in ("string_type", "path_type"):
        return f"{where}: expected text, got {got!r}; put it in quotes"
    message = str(item["msg"]).removeprefix("Value error, ")
    if kind != "value_error":
        return f"{where}: {message}, got {got!r}"
    return message if not where or message.startswith(f"{where}.") else f"{where}: {message}"
