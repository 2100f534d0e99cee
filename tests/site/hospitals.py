"""Three hospitals for tests: keys, a roster, files of their own, and offers that both aggregators signed."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from orchestrator.agreement.from_settings import plan_of
from orchestrator.agreement.identity import OwnKey
from orchestrator.agreement.roster import Member, Roster
from orchestrator.agreement.site_file import SiteFile
from orchestrator.agreement.terms import Offer, RunTerms, sign_offer
from orchestrator.config import Config, load_config
from orchestrator.coordinator.site_transport import SiteTransport
from orchestrator.errors import PeerLostError
from orchestrator.graphs import client_graphs, load_graph
from orchestrator.graphs.graph import Graph
from orchestrator.methods import method_class
from orchestrator.models import create_network
from orchestrator.site.worker import Worker
from orchestrator.wire.envelope import Keypair

NAMES = ("clinic-a", "clinic-b", "clinic-c")
RUN = "ab" * 16
SETTINGS = (
    "seed=7",
    "clients={count: 3, partition: own}",
    "model.hidden=8",
    "method={name: f2gnn, local_epochs: 2, learning_rate: 1e-2}",
    "federation={rounds: 3, cohort: 3}",
    "evaluation.where=nowhere",
    "engine={name: embedded, timeout_sec: 30, training_timeout_sec: 60}",
)
NOISE = ("privacy.clip_norm=1.0", "privacy.noise_multiplier=1.0")


def settings(*overrides: str) -> Config:
    return load_config(overrides=[*SETTINGS, *overrides])


@dataclass
class Hospitals:
    """The consortium. Attributes: graphs: of the sites, as they read them themselves."""

    folder: Path
    keys: dict[str, OwnKey]
    roster: Roster
    graphs: list[Graph] = field(default_factory=list)

    def file(self, name: str, folder: Path, policy: str = "", **changed: object) -> Path:
        """A site's own file, in a new folder; its policy allows everything but what is given."""
        home = folder / name
        home.mkdir(parents=True)
        paths = {each: str(self.folder / name / f"{each}.csv") for each in ("nodes", "edges")}
        columns = {"label": "label", "sensitive": "group", "split": "split", "id": "id"}
        values = {"label_values": ["0", "1"], "sensitive_values": ["0", "1"]}  # a site may lack one of them
        said = {
            "identity": str(self.folder / "keys" / name),
            "roster": str(self.folder / "consortium.yaml"),
            "data": {"name": "files", "files": {**paths, **columns, **values}},
            "policy": {"noise_multiplier": 0, "largest_epsilon": None, "min_cohort": 1} | json.loads(policy or "{}"),
            **changed,
        }
        path = home / "site.yaml"
        path.write_text(json.dumps(said))
        return path

    def worker(self, folder: Path, name: str = "clinic-a", policy: str = "", **changed: object) -> Worker:
        """A site in this process, without its socket; a second one of the same folder is the first, started again."""
        path = folder / name / "site.yaml"
        site = SiteFile.read(path if path.exists() else self.file(name, folder, policy, **changed))
        site.folder.mkdir(mode=0o700, exist_ok=True)
        return Worker(site, self.keys[name], self.roster, self.graphs[NAMES.index(name)], bytes(16))

    def length(self, config: Config) -> int:
        graph = self.graphs[0]
        size = create_network(graph.num_features, graph.classes, config.model).size
        return size + len(method_class(config.method.name).beside(config))

    def terms(self, config: Config, **changed) -> RunTerms:
        fields = {"consortium": self.roster.digest, "run": RUN, "seed": config.seed} | changed
        plan = fields.pop("plan", None) or plan_of(config)
        return RunTerms.of(config, plan=plan, length=fields.pop("length", self.length(config)), **fields)

    def offer(self, terms: RunTerms | bytes, run: bytes = b"r" * 16, keys=None, signers=("uni-x", "uni-y")) -> Offer:
        """Signed by both, each for its own key."""
        data = terms if isinstance(terms, bytes) else terms.to_bytes()
        first, second = keys or (Keypair().public_key, Keypair().public_key)
        signatures = [sign_offer(self.keys[name], k, run, data, (first, second)[k]) for k, name in enumerate(signers)]
        return Offer(run, data, (first, second), (signatures[0], signatures[1]))


def make_hospitals(folder: Path, ports: tuple[int, int] = (7700, 7701)) -> Hospitals:
    """Parts of a synthetic graph, written as each hospital's own files."""
    names = ("uni-x", "uni-y", "hub", *NAMES)
    (folder / "keys").mkdir()
    keys = {name: OwnKey.create(folder / "keys" / name, name) for name in names}
    places = {"uni-x": ("127.0.0.1", ports[0]), "uni-y": ("127.0.0.1", ports[1])}
    x, y, hub, *sites = (Member(name, keys[name].certificate, places.get(name)) for name in names)
    roster = Roster("trial", (x, y), hub, tuple(sites))
    (folder / "consortium.yaml").write_text(roster.to_yaml())
    config = settings("data.synthetic={nodes: 180, edges: 500, features: 5}", "clients.partition=disjoint")
    made = Hospitals(folder, keys, roster)
    for name, graph in zip(NAMES, client_graphs(load_graph(config.data, 3), config.clients, 3), strict=True):
        write_graph(folder / name, graph)
    for name in NAMES:
        site = SiteFile.read(made.file(name, folder / "reading"))
        made.graphs.append(load_graph(site.data, 0, part=True))
    return made


def write_graph(folder: Path, graph: Graph) -> None:
    folder.mkdir()
    assert graph.sensitive is not None
    split = np.select([graph.train, graph.val, graph.test], ["train", "val", "test"], "")
    columns = [f"x{k}" for k in range(graph.num_features)]
    rows = [",".join(["id", "label", "group", "split", *columns])]
    for k in range(graph.num_nodes):
        features = [repr(float(value)) for value in graph.features[k]]
        rows.append(",".join([f"n{k}", str(graph.labels[k]), str(graph.sensitive[k]), split[k], *features]))
    (folder / "nodes.csv").write_text("\n".join(rows) + "\n")
    edges = ["from,to", *(f"n{u},n{v}" for u, v in graph.edges.T.tolist())]
    (folder / "edges.csv").write_text("\n".join(edges) + "\n")


class Beside(SiteTransport):
    """Workers in this process.

    Attributes:
        asked: every request so far, with the site's name.
        lost: sites that do not answer.
        lies: what is brought from a site instead of its reply.
        backwards: whether the last site is asked first.
    """

    def __init__(self, workers: dict[str, Worker]) -> None:
        self.workers = workers
        self.asked: list[tuple[str, bytes]] = []
        self.lost: set[str] = set()
        self.lies: dict[str, bytes] = {}
        self.backwards = False

    def ask(self, requests, timeout_sec):
        for name, request in sorted(requests.items(), reverse=self.backwards):
            if name in self.lost or name not in self.workers:
                yield name, PeerLostError(f"site {name}", "site", 0, "its worker is not there")
                continue
            self.asked.append((name, request))
            yield name, self.lies.get(name) or self.workers[name].reply(request)

    def close(self) -> None:
        self.workers = {}
