"""Modules as a user would write them, in a file that clients' processes import quickly."""

from __future__ import annotations

from torch import nn
from torch.nn.functional import dropout
from torch_geometric.nn import GCNConv


class GCN(nn.Module):
    """The built-in network's layers; of two classes it gives one logit."""

    def __init__(self, in_features, out_features, dropout=0.0):
        super().__init__()
        self.layer1, self.layer2 = GCNConv(in_features, 8), GCNConv(8, 8)
        self.classifier, self.dropout = nn.Linear(8, 1), dropout

    def forward(self, x, edge_index):
        rows = dropout(self.layer1(x, edge_index).relu(), self.dropout, self.training)
        return self.classifier(self.layer2(rows, edge_index)).squeeze(1)


class Broken(GCN):
    def __init__(self, in_features, out_features):
        super().__init__(in_features, out_features)
        self.norm = nn.BatchNorm1d(8)
