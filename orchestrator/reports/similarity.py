"""What personalised aggregation found out about the clients, beside what is true of them; for simulations only.

On secret shares nobody knows the weights. In plaintext the engine does, and a run leaves them in `weights.csv`.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from orchestrator.config import Config
from orchestrator.coordinator.run_folder import RunFolder
from orchestrator.graphs import client_graphs
from orchestrator.graphs.graph import Graph
from orchestrator.graphs.partition import Subgraphs
from orchestrator.reports.plots import plot_similarity

__all__ = ["draw_similarity", "label_similarity"]


def draw_similarity(
    folder: RunFolder, graph: Graph, config: Config, own_clients: Sequence[Graph] | None = None
) -> bool:
    """Draw `similarity.png` where the run knows its weights; returns whether it does.

    Beside them stands which clients come from one community, where the partition has communities of several clients,
    or else how alike the clients' labels are.

    Args:
        own_clients: the clients' graphs, where they were not cut out of the whole as the settings say.
    """
    known = folder.weights()
    if known is None:
        return False
    order = np.argsort(known[0])
    clients, weights = [known[0][k] for k in order], known[1][np.ix_(order, order)]
    parts = own_clients or client_graphs(graph, config.clients, config.seed)
    communities = parts.communities[clients] if isinstance(parts, Subgraphs) else np.array(clients)
    if len(set(communities.tolist())) < len(clients):
        truth, label = (communities[:, None] == communities).astype(float), "same community"
    else:
        truth, label = label_similarity([parts[c] for c in clients]), "cosine of label counts"
    title = f"{config.data.name}, {config.clients.partition}, {config.method.name}"
    plot_similarity(weights, truth, label, clients, folder.path / "similarity.png", title)
    return True


def label_similarity(clients: Sequence[Graph]) -> np.ndarray:
    """Cosine of the clients' label counts; float64, shape (q, q), 0 for a client without labels."""
    counts = np.stack([np.bincount(c.labels[c.labels >= 0], minlength=c.classes) for c in clients]).astype(float)
    lengths = np.linalg.norm(counts, axis=1)
    unit = counts / np.where(lengths > 0, lengths, 1)[:, None]
    return unit @ unit.T
