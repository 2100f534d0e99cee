"""Group balance of a client's graph (SaFeGNN, section 3.1)."""

from __future__ import annotations

from orchestrator.errors import DataError
from orchestrator.graphs.graph import Graph

__all__ = ["group_balance"]


def group_balance(graph: Graph, self_loops: bool = False) -> float:
    """B = 1 - |H_intra - H_inter|, H the shares of edges within one group and between the two groups.

    B is in [0, 1]: 1 if half of the edges cross, 0 if all or none do.

    | case                  | B                                                                                 |
    |-----------------------|-----------------------------------------------------------------------------------|
    | no edges              | 0, where the formula is 0/0: a client without edges gives no evidence of balance, |
    |                       | so it must not gain weight by it; counting self-loops gives the same value        |
    | one edge              | 0, as the formula says                                                            |
    | `self_loops`          | each edge counts in both directions and each node's self-loop once as intra, as   |
    |                       | F2GNN's reference code does: B(self_loops) <= B if intra edges are the majority   |

    Args:
        graph: any graph.
        self_loops: count self-loops as the reference code does.

    Raises:
        DataError: the graph has no groups.
    """
    if graph.sensitive is None:
        raise DataError(f"{graph.name}: no sensitive attribute; fairness between groups needs data that have one")
    intra = 2 * int((graph.sensitive[graph.edges[0]] == graph.sensitive[graph.edges[1]]).sum())
    inter = 2 * graph.num_edges - intra
    if self_loops:
        intra += graph.num_nodes
    total = intra + inter
    return 1 - abs(intra - inter) / total if total else 0.0
