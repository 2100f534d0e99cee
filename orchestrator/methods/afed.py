"""AFed-GAN's client (Chen, Zhu, Zhou, Zhao, 2025): a conditional generator that all train together, and what it adds.

After the model's numbers stand those of a generator G(noise, group, label) and of a discriminator D(embedding, group,
label): two layers each. A client trains all three on its own nodes, and servers aggregate them as one vector. G learns
what embeddings the nodes of all clients have, so that a client can add those of groups and labels that it lacks: each
of the four alike, so that group tells nothing about label in what is added. Embeddings are what the network's last
linear map reads (`GCN.embeddings`), since a generated node has no neighbours.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Self

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from orchestrator.config import Config
from orchestrator.methods.adam_training import Batch, sum_up
from orchestrator.methods.fair_settings import AFedSettings
from orchestrator.methods.fair_training import FairTraining
from orchestrator.models.gcn import GCN
from orchestrator.seeding import seeded_generator

__all__ = ["AFed", "Networks", "mismatch"]

_NOISE, _CELLS, _UNITS = 8, 4, 32
_START = -2.0
"""Of the generator's rectified units, whose first outputs are then about 1/8: of an embedding's order of size."""


class Networks:
    """Generator and discriminator of embeddings of length h, as functions of one vector, shape (`size(h)`,).

    Cell 2 s + y is that of group s and label y.
    """

    def __init__(self, numbers: Tensor, hidden: int) -> None:
        parts = numbers.split([math.prod(shape) for shape in self._shapes(hidden)])
        shaped = [part.view(shape) for part, shape in zip(parts, self._shapes(hidden), strict=True)]
        self._generator, self._discriminator = shaped[:4], shaped[4:]

    @staticmethod
    def _shapes(hidden: int) -> list[tuple[int, ...]]:
        generator = [(_UNITS, _NOISE + _CELLS), (_UNITS,), (hidden, _UNITS), (hidden,)]
        return [*generator, (_UNITS, hidden + _CELLS), (_UNITS,), (1, _UNITS), (1,)]

    @classmethod
    def size(cls, hidden: int) -> int:
        return sum(math.prod(shape) for shape in cls._shapes(hidden))

    @classmethod
    def initial(cls, hidden: int, rng: np.random.Generator) -> np.ndarray:
        """Glorot's uniform weights and no biases; float64."""
        bounds = [math.sqrt(6 / sum(shape)) if len(shape) == 2 else 0.0 for shape in cls._shapes(hidden)]
        return np.concatenate(
            [rng.uniform(-b, b, math.prod(shape)) for b, shape in zip(bounds, cls._shapes(hidden), strict=True)]
        )

    def generate(self, noise: Tensor, cells: Tensor) -> Tensor:
        """Embeddings, shape (k, h), none below 0, as a mean of rectified units. Args: noise: (k, 8); cells: (k,)."""
        w, b, v, c = self._generator
        return F.softplus(_START + F.linear(F.leaky_relu(F.linear(_labelled(noise, cells), w, b), 0.2), v, c))

    def judge(self, embeddings: Tensor, cells: Tensor, fixed: bool = False) -> Tensor:
        """The logits that embeddings are true, shape (k,). Args: fixed: the discriminator itself is not to learn."""
        w, b, v, c = (part.detach() if fixed else part for part in self._discriminator)
        return F.linear(F.leaky_relu(F.linear(_labelled(embeddings, cells), w, b), 0.2), v, c).squeeze(1)


def _labelled(rows: Tensor, cells: Tensor) -> Tensor:
    return torch.cat([rows, F.one_hot(cells, _CELLS).float()], dim=1)


class AFed(FairTraining):
    """The model learns from nodes and from what is generated, the generator from fooling: neither from the other."""

    settings: AFedSettings

    @classmethod
    def beside(cls, config: Config) -> np.ndarray:
        return Networks.initial(config.model.hidden, seeded_generator(config.seed, "afed"))

    @classmethod
    def objective(cls, batch: Batch[Self], trained: Tensor, noises: Sequence[np.random.Generator]) -> Tensor:
        network, method = batch.network, batch.clients[0].settings
        assert isinstance(network, GCN)
        size, hidden = network.size, network.config.hidden
        models = trained[:, :size]
        total = cls.loss(batch, batch.logits(models, noises))
        with torch.no_grad():
            true = batch.each(batch.embeddings(models))
        cells = torch.arange(method.samples) % _CELLS
        parts = []
        for client, model, numbers, rows, noise in zip(
            batch.clients, models, trained[:, size:], true, noises, strict=True
        ):
            networks = Networks(numbers, hidden)
            drawn = torch.from_numpy(noise.standard_normal((method.samples, _NOISE), np.float32))
            made = networks.generate(drawn, cells)
            parts += [
                _binary(networks.judge(rows, client._own_cells), 1.0),
                _binary(networks.judge(made.detach(), cells), 0.0),
                _binary(networks.judge(made, cells, fixed=True), 1.0),
                method.matching * mismatch(made, cells, rows, client._own_cells),
                method.augment * network.loss(network.read(model, made.detach()), (cells % 2).float()),
            ]
        return total + sum_up(parts)

    @property
    def _own_cells(self) -> Tensor:
        """Of the training nodes, int64, shape (n,)."""
        nodes = self.nodes.numpy()
        return torch.from_numpy(2 * self.sensitive[nodes].astype(np.int64) + self.positive[nodes])


def mismatch(made: Tensor, cells: Tensor, true: Tensor, true_cells: Tensor) -> Tensor:
    """Squared distance of a cell's mean generated embedding from its mean true one; the mean over cells there are.

    Feature matching (Salimans et al., "Improved techniques for training GANs", NeurIPS 2016), cell by cell.
    """
    there = true_cells.unique()
    means = [(made[cells == c].mean(dim=0) - true[true_cells == c].mean(dim=0)).square().sum() for c in there]
    return torch.stack(means).mean()


def _binary(logits: Tensor, target: float) -> Tensor:
    return F.binary_cross_entropy_with_logits(logits, torch.full_like(logits, target))
