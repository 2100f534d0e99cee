"""The sections of the settings. Units stand in the names: ``_bits``, ``_sec``; everything else is dimensionless.

What belongs to one method only is in that method's own section, see `orchestrator.config.method`.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from orchestrator.config.own_files import FilesConfig
from orchestrator.section import Section

__all__ = [
    "ClientsConfig",
    "DataConfig",
    "EngineConfig",
    "EvaluationConfig",
    "FederationConfig",
    "ModelConfig",
    "PrivacyConfig",
    "QuantileConfig",
    "RunConfig",
    "SharingConfig",
    "SyntheticConfig",
]


class SyntheticConfig(Section):
    """Parameters of the synthetic generator (``data.name: synthetic``)."""

    nodes: int = Field(2000, ge=10, le=10**8, description="number of nodes")
    edges: int = Field(8000, ge=1, le=10**9, description="undirected edges")
    features: int = Field(32, ge=1, le=10**6, description="features of a node")
    degree_exponent: float = Field(2.5, gt=2.0, le=100, description="power law of the expected degrees")
    sensitive_rate: float = Field(0.45, gt=0, lt=1, description="share of nodes with s = 1")
    positive_rate: float = Field(0.5, gt=0, lt=1, description="share of nodes with y = 1")
    label_bias: float = Field(0.1, ge=-0.9, le=0.9, description="P(y=1|s=1) - P(y=1|s=0)")
    label_homophily: float = Field(0.6, gt=0, lt=1, description="weight of edges within one label, against across")
    group_homophily: float = Field(0.9, gt=0, lt=1, description="weight of edges within one group, against across")
    missing_rate: float = Field(0.0, ge=0, lt=1, description="share of nodes whose label is missing")
    signal: float = Field(1.0, ge=0, le=1e6, description="distance between the feature means of the two labels")
    group_signal: float = Field(0.5, ge=0, le=1e6, description="distance between the feature means of the two groups")


class DataConfig(Section):
    """The graph: where it comes from, and what is done with it before it is cut into clients."""

    name: Literal["synthetic", "pokec-z", "pokec-n", "nba", "german", "cora", "citeseer", "pubmed", "files", "own"] = (
        Field(
            "synthetic",
            description="synthetic: drawn as data.synthetic says; files: read as data.files says; own: given in "
            "Python, and the rest of data has no effect; others: by name",
        )
    )
    dir: Path | None = Field(
        None,
        description="folder with the raw files, or what the paths of data.files are relative to; null: the folder of "
        "`safegnn data fetch`, or the working directory",
    )
    nodes: Literal["labelled_component", "all"] | None = Field(
        None,
        description="labelled_component: drop nodes without label and their edges, keep the largest component; "
        "all: keep every node and mask labels; null: all of data.files, labelled_component of others",
    )
    scaling: Literal["by_client", "pooled", "row_normalised", "none"] = Field(
        "by_client",
        description="of features; by_client: every client brings its own to mean 0 and variance 1 over its nodes that "
        "are for neither validation nor test; pooled: over all nodes of all clients, as in the papers and only in "
        "simulations, and constant ones go; row_normalised: a node's features are divided by their sum; none: as they "
        "are",
    )
    split: tuple[float, float, float] = Field(
        (0.5, 0.25, 0.25), description="shares of the labelled nodes for training, validation and test; they sum to 1"
    )
    stratified: bool = Field(
        True,
        description="true: each class of each group is split by these shares, so that small groups are in every part; "
        "false: a plain shuffle is, as in the papers",
    )
    files: FilesConfig | None = None
    synthetic: SyntheticConfig = SyntheticConfig()

    def absolute(self, base: Path | None = None) -> Self:
        """Names of files in `dir` stay, which may be given anew."""
        made = super().absolute(base)
        return made if self.dir is None else made.model_copy(update={"files": self.files})

    @model_validator(mode="after")
    def _files_are_described(self) -> DataConfig:
        if self.name == "files" and self.files is None:
            raise ValueError(
                "data.name is files: data.files must say nodes and label; `safegnn data check FILES` writes the section"
            )
        if self.files is not None and self.files.client_folders and self.dir is None:
            raise ValueError("data.files.client_folders: data.dir must name the folder that holds the clients' folders")
        return self

    @model_validator(mode="after")
    def _split_is_whole(self) -> DataConfig:
        if self.split[0] <= 0 or min(self.split) < 0 or abs(sum(self.split) - 1) > 1e-9:
            raise ValueError(
                f"data.split = {list(self.split)}: expected three shares that sum to 1, of which only the validation's "
                "and the test's may be 0"
            )
        return self


class ClientsConfig(Section):
    """How clients are cut out of the graph; see `orchestrator.graphs.partition`."""

    count: int = Field(30, ge=1, le=10**6, description="number of clients")
    partition: Literal["ego", "disjoint", "overlapping", "louvain", "whole", "given", "own"] = Field(
        "ego",
        description="ego: k-hop networks around training nodes; disjoint: parts of METIS; overlapping: several clients "
        "a part, each with a random share of its nodes; louvain: communities, brought to about equal size; whole: one "
        "client that holds everything; given: as data.files.client or client_folders says, without edges between "
        "clients; own: graphs given in Python, one a client",
    )
    hops: int = Field(3, ge=0, le=1000, description="k, of ego")
    ego_sampling: Literal["distinct", "with_replacement"] = Field(
        "distinct", description="of ego; distinct: no two clients have the same ego; with_replacement: they may"
    )
    min_nodes: int = Field(1, ge=1, le=10**9, description="of ego: egos whose network is smaller are passed over")
    copies: int = Field(5, ge=1, le=10**6, description="of overlapping: clients a part")
    share: float = Field(0.5, gt=0, le=1, description="of overlapping: share of its part's nodes that a client holds")
    tolerance: int = Field(
        20,
        ge=0,
        le=10**9,
        description="of louvain: nodes by which clients may be larger, and pieces are smaller, than the mean",
    )
    max_memberships: int | None = Field(
        None,
        ge=1,
        le=10**6,
        description="clients that a person, which is a node, is in at most; ego and overlapping keep to it in cutting "
        "clients, for others it is a promise of those who bring data; null: nobody says, and no person's epsilon is "
        "stated where several may hold one",
    )
    features: Literal["float", "truncated"] = Field(
        "float", description="float: as they are; truncated: towards zero, as the reference code"
    )
    balance_self_loops: bool = Field(False, description="count self-loops as intra-group edges in B")
    batch: int = Field(
        1, ge=1, le=10**6, description="clients that a process trains together; pays for many small networks"
    )

    @property
    def memberships(self) -> int | None:
        """In how many clients a person is at most, by what is public; None: nobody says less than in all of them."""
        if self.max_memberships is not None:
            return min(self.max_memberships, self.count)
        if self.partition == "overlapping":
            return self.copies
        return 1 if self.partition in ("disjoint", "louvain", "whole") else None

    @model_validator(mode="after")
    def _partition_fits(self) -> ClientsConfig:
        if self.partition == "overlapping" and self.count % self.copies:
            raise ValueError(
                f"clients.count = {self.count} is no multiple of clients.copies = {self.copies}, as "
                "clients.partition = overlapping needs"
            )
        if self.partition == "whole" and self.count != 1:
            raise ValueError(f"clients.partition = whole makes one client, but clients.count = {self.count}")
        if self.partition == "overlapping" and (self.max_memberships or self.copies) > self.copies:
            raise ValueError(
                f"clients.max_memberships = {self.max_memberships}: with clients.partition = overlapping a node is in "
                f"at most clients.copies = {self.copies}"
            )
        if self.partition == "own" and self.features == "truncated":
            raise ValueError(
                "clients.features = truncated: with clients.partition = own features are as they are given"
            )
        return self


class ModelConfig(Section):
    """The network that every client trains."""

    name: Literal["gcn", "gcn-classifier", "sage", "own"] = Field(
        "gcn",
        description="gcn: F2GNN's, two classes; gcn-classifier: FED-PUB's, with a nonlinearity after each layer; "
        "sage: GraphSAGE with neighbour sampling; own: a torch module given in Python, for which the rest of model has "
        "no effect",
    )
    hidden: int = Field(64, ge=1, le=10**6, description="units of a hidden layer")
    dropout: float = Field(0.1, ge=0, lt=1, description="probability with which training drops a hidden unit")
    neighbours: int | None = Field(
        5, ge=1, le=10**6, description="of sage: neighbours sampled of each node in training; null: all"
    )


class FederationConfig(Section):
    """How many rounds there are, and who takes part in them."""

    rounds: int = Field(
        500, ge=1, le=10**9, description="rounds to train; privacy.epsilon_budget may end training earlier"
    )
    cohort: int = Field(10, ge=1, le=10**6, description="clients sampled per round; in few a client hides badly")
    sampling: Literal["distinct", "with_replacement", "poisson", "cyclic"] = Field(
        "distinct",
        description="poisson: every client with probability cohort / clients.count, so cohorts vary in size; cyclic: "
        "all clients in turn, in an order drawn once",
    )
    clients: Literal["trusted", "untrusted"] = Field(
        "trusted",
        description="untrusted: the servers check on shares that every update is at most privacy.clip_norm long and "
        "every score in its range, and leave out who lies",
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


class QuantileConfig(Section):
    """The adaptive clip bound of Andrew et al. (NeurIPS 2021); ``privacy.clip_norm`` is that of the first round."""

    target: float = Field(0.5, gt=0, lt=1, description="share of updates whose norm lies below the bound")
    learning_rate: float = Field(0.2, gt=0, le=10, description="eta of C <- C exp(-eta (share below - target))")
    bit_noise_multiplier: float = Field(
        10.0, gt=0, description="noise of the count of updates below the bound, relative to the count's sensitivity"
    )


class PrivacyConfig(Section):
    """Client-level differential privacy of the released models; see docs/privacy.md."""

    clip_norm: float | None = Field(
        None, gt=0, description="C, with clip: quantile that of the first round; null: updates are not clipped"
    )
    clip: Literal["fixed", "quantile"] = Field(
        "fixed", description="fixed: C is clip_norm; quantile: from there C follows a private quantile of norms"
    )
    quantile: QuantileConfig = QuantileConfig()
    noise_multiplier: float = Field(0.0, ge=0, le=1e6, description="sigma, relative to the L2 sensitivity; 0: no noise")
    noise: Literal["each_full", "split", "clients"] = Field(
        "each_full",
        description="each_full: each server's noise alone is sigma; split: sigma/sqrt(2) each, the paper; clients: "
        "every client adds a part instead, for plain means",
    )
    honest_clients: int | None = Field(
        None,
        ge=1,
        description="with noise: clients of a round's clients the noise of so many is sigma together: so many at least "
        "must answer, add their noise and tell nobody; null: federation.min_cohort",
    )
    sensitivity: Literal["worst_case", "bounded_weights"] = Field(
        "worst_case", description="worst_case: 2 C; bounded_weights: from the public ranges of the weights"
    )
    bands: int | None = Field(
        None,
        ge=1,
        le=256,
        description="with sampling: cyclic noise takes back a part of what it added in so many rounds less one; 1: "
        "every round's noise is its own, as without cyclic and with clip: quantile; null: as many as lie between a "
        "client's turns, at most 64",
    )
    accountant: Literal["tightest", "rdp", "pld", "paper"] | None = Field(
        "tightest",
        description="of the epsilon that is stated; tightest: the smaller of rdp's and pld's; paper is refused, see "
        "docs/privacy.md; null: none is stated",
    )
    delta: float = Field(1e-5, gt=0, lt=1, description="of (epsilon, delta), for a client's whole data")
    epsilon_budget: float | None = Field(
        None, gt=0, description="training stops before a round that would exceed it; null: no limit"
    )

    ledger: Path | None = Field(
        None,
        description="file that clients keep beside their data: what all runs together spent on these; null: none",
    )
    ledger_limit: float | None = Field(
        None,
        gt=0,
        description="largest epsilon for an outsider that the ledger may reach: clients take no part in what would "
        "exceed it; null: no limit",
    )

    @model_validator(mode="after")
    def _fits_together(self) -> PrivacyConfig:
        if self.ledger_limit is not None and self.ledger is None:
            raise ValueError("privacy.ledger_limit needs privacy.ledger: the file that it is about")
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


class SharingConfig(Section):
    """Fixed point of the vectors in Z_2^64; see `orchestrator.mpc.fixed_point.VectorFormat`."""

    update_bits: int = Field(25, ge=1, le=64, description="fractional bits of the updates")
    weight_bits: int = Field(32, ge=1, le=32, description="fractional bits of the weights")
    integer_bits: int = Field(6, ge=1, le=64, description="model parameters and update norms stay below 2^integer_bits")


_Port = Annotated[int, Field(ge=0, le=65535)]


class EngineConfig(Section):
    """What aggregates the clients' updates."""

    name: Literal["embedded", "plaintext", "mpspdz", "masking"] = Field(
        "embedded",
        description="embedded: two servers on secret shares; mpspdz: the same by an installed MP-SPDZ; plaintext: "
        "float64, without any protection; masking: one server and pairwise masks, simulated, for plain means",
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
    startup_timeout_sec: float = Field(
        120.0, gt=0, le=1e6, description="longest start of the engine's processes, until they have met and are ready"
    )
    timeout_sec: float = Field(60.0, gt=0, le=1e6, description="longest silence of a peer within a phase of a round")
    training_timeout_sec: float = Field(3600.0, gt=0, le=1e6, description="longest local training of one cohort")
    client_processes: int = Field(
        2, ge=1, le=1024, description="processes among which the simulated clients are divided"
    )
    ports: tuple[_Port, _Port, _Port] | None = Field(None, description="server 0, server 1, dealer; null: free ones")
    certificates: Path | None = Field(
        None, description="folder that `safegnn certs` wrote; null: certificates for this session only"
    )


class EvaluationConfig(Section):
    """What a round's metrics are of. Evaluation is outside the threat model: somebody sees its results."""

    where: Literal["whole_graph", "clients", "nowhere"] = Field(
        "whole_graph",
        description="whole_graph: utility and fairness of the global model, by a holder of the whole graph; clients: "
        "every client on its own nodes: mean over the clients, gaps also of all their nodes together; nowhere: not at "
        "all",
    )
    model: Literal["released", "trained"] = Field(
        "released",
        description="with where: clients; released: what the round gave the client; trained: what the client has after "
        "its local training, before aggregation, as FED-PUB's code reports it",
    )
    tables: Literal["each", "summed"] = Field(
        "each",
        description="with where: clients; each: whoever coordinates sees every client's counts; summed: they are added "
        "up on shares, and only what all clients' nodes say together is known",
    )
    every: int | None = Field(
        None,
        ge=1,
        description="of summed tables: rounds between evaluations, beside that of the last round; null: every round, "
        "with noise the last round alone",
    )
    noise_multiplier: float | None = Field(
        None,
        ge=0,
        le=1e6,
        description="of summed tables: noise, relative to how far one client can move them, which epsilon counts; "
        "null: privacy.noise_multiplier",
    )
    bound: float = Field(
        1000.0,
        gt=0,
        le=1e9,
        description="of summed tables: public bound of the Euclidean norm of a client's counts, never above twice its "
        "nodes; counts of larger clients are scaled down to it",
    )
    bins: int = Field(
        64, ge=0, le=10**4, description="of summed tables: bins of the scores that AUC is computed from; 0: no AUC"
    )
    exact_beside_noise: bool = Field(
        False,
        description="true: a run with noise may record exact metrics, and scale features over all clients' data, "
        "beside an epsilon that covers neither, for simulations only",
    )

    @model_validator(mode="after")
    def _tables_fit(self) -> EvaluationConfig:
        if self.tables == "summed" and (self.where, self.model) != ("clients", "released"):
            raise ValueError(
                "evaluation.tables = summed needs evaluation.where = clients and evaluation.model = released"
            )
        for name in ("every", "noise_multiplier"):
            if self.tables != "summed" and getattr(self, name) is not None:
                raise ValueError(f"evaluation.{name} is of summed tables: set evaluation.tables = summed")
        return self


class RunConfig(Section):
    """What a run leaves behind."""

    dir: Path = Field(Path("runs"), description="folder in which every run makes a folder of its own")
    tensorboard: bool = Field(
        False, description="also write TensorBoard logs into it; needs the package's extra, safegnn[tensorboard]"
    )
    checkpoint_rounds: int = Field(
        1, ge=1, le=10**9, description="rounds between checkpoints; the last round has one in any case"
    )
