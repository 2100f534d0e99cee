"""NeighGen, the missing-neighbour generator of FedSage+: Zhang et al. (NeurIPS 2021), sections 4.1 and 4.2.

For a node v with embedding z_v = H^e(v), the encoder H^e a two-layer GraphSAGE, it predicts

    n~_v = relu(w . z_v + b)                          dGen: how many neighbours v lacks
    x~_v^p = s MLP(z_v + r sd(z) N(0, 1)), p <= n~_v  fGen: their features, with noise of its own for each

It learns from a graph of which h % of the nodes are hidden. With V the k remaining nodes, n_v the number of hidden
neighbours of v, V_j the nodes of another client, and f s^2 the mean squared distance of a node from the mean feature,

    L^d = 1/k sum_v smooth_l1(n~_v - n_v)
    L^f = 1/(k f s^2) sum_v sum_{p <= n_v} ( min over hidden neighbours u of v: ||x~_v^p - x_u||^2
                                             + alpha sum_{j != i} min over u in V_j: ||x~_v^p - x_u||^2 )

and one step of Adam follows the gradient of L^d + L^f. The terms of the other clients need their features, which do
not leave them. Client i sends its fGen and the inputs of fGen, client j answers with the gradient of its term with
respect to fGen, and client i hears the sum of the answers, which is made on shares. Embeddings are constants there, so
these terms train fGen alone: the encoder stays with its client.

The paper's text leaves the scales open, and on them hangs whether anything is learnt. Noise is in units of the
embeddings' standard deviation. Outputs are in units of the features' own, s, and start at the client's
mean feature. Both give embeddings and features no differential privacy.

A share h of the nodes is held out from all training. Each step hides a share h of the others anew; among these a node
has fewer neighbours, so n~_v falls short of what is held out by a factor of about 1 - h. Of the remaining nodes one
half chooses, by its held-out neighbours, the networks of the best step, those of the start among them. So what others
answered stays only where it helps with what the client can check. The other half says how good that is
(`NeighbourGenerator.finish`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from scipy.sparse import csr_array
from torch import Tensor, nn
from torch.nn.utils import parameters_to_vector
from torch_geometric.nn import SAGEConv

from orchestrator.graphs.graph import Graph
from orchestrator.methods.fedsage.impairment import Impairment, impair
from orchestrator.methods.fedsage.settings import GeneratorSettings
from orchestrator.seeding import derived_seed, seeded_generator

__all__ = ["QUALITY", "NeighbourGenerator", "nearest", "nearest_neighbour"]

QUALITY = ("generator_features", "generator_counts")
"""The names of what `NeighbourGenerator.finish` says."""

_BLOCK = 2**22
"""Numbers in the largest temporary array of a search for nearest rows: 16 MB of float32."""

_LOOK, _PATIENCE = 5, 30
"""Steps between two looks at the held-out nodes, and without improvement before training alone ends."""


class Encoder(nn.Module):
    """H^e: node embeddings, float32, shape (n, latent). The last layer is linear, so that noise does not drown it."""

    def __init__(self, num_features: int, settings: GeneratorSettings) -> None:
        super().__init__()
        self.first = SAGEConv(num_features, settings.encoder_hidden)
        self.second = SAGEConv(settings.encoder_hidden, settings.latent)
        self.dropout = settings.dropout

    def forward(self, features: Tensor, arcs: Tensor) -> Tensor:
        """Args: features: (n, f); arcs: int64, (2, 2 m), every edge in both directions."""
        hidden = F.relu(self.first(features, arcs))
        return self.second(F.dropout(hidden, self.dropout, self.training), arcs)


class FeatureGenerator(nn.Module):
    """fGen after the noise, in units of s. The last layer is linear: features may be of any size and sign.

    There is no dropout: the client that answers a question then differentiates exactly the function that asked.
    """

    def __init__(self, num_features: int, settings: GeneratorSettings) -> None:
        super().__init__()
        first, second = settings.widths
        self.first, self.second = nn.Linear(settings.latent, first), nn.Linear(first, second)
        self.last = nn.Linear(second, num_features)

    def start_at(self, constant: Tensor) -> None:
        """Generate this feature, float32, shape (f,), whatever the input."""
        with torch.no_grad():
            self.last.weight.zero_()
            self.last.bias.copy_(constant)

    def forward(self, noisy: Tensor) -> Tensor:
        """Features of r neighbours, float32, shape (r, f). Args: noisy: (r, latent)."""
        return self.last(F.relu(self.second(F.relu(self.first(noisy)))))


class _Prediction(NamedTuple):
    """`counts` n~_v of n nodes, float32, (n,); `owners`, int64, (r,), the node of each neighbour that is to be
    generated, ascending; and `noisy`, (r, latent), the inputs of fGen."""

    counts: Tensor
    owners: Tensor
    noisy: Tensor


class NeighbourGenerator:
    """One client's generator.

    Every random choice derives from the seed, the client and the number of steps taken, none from the process. So a
    question and the step that uses its answers see the same hidden nodes, dropout and noise.
    """

    def __init__(self, graph: Graph, settings: GeneratorSettings, seed: int, client: int) -> None:
        self.graph, self.settings = graph, settings
        self._purpose = (seed, "neighbour generator", client)
        self._held_out = self._hide(graph, "held out")
        seen = self._held_out.graph.features
        self._mean = torch.from_numpy(seen.mean(0)) if len(seen) else torch.zeros(graph.num_features)
        deviation = float(np.sqrt(np.square(seen - self._mean.numpy()).mean())) if seen.size else 0.0
        self._scale = deviation or 1.0  # s; 1 where all nodes are alike
        with self._random("initial"):
            self._encoder = Encoder(graph.num_features, settings)
            number = nn.Linear(settings.latent, 1)
            self._count = nn.Sequential(number, nn.ReLU())
            self._generate = FeatureGenerator(graph.num_features, settings)
        # Both start at the best constants; for dGen that is in the active part of its ReLU, else it would never learn
        counts = self._held_out.counts
        nn.init.constant_(number.bias, float(counts.mean()) if len(counts) else 0.0)
        self._generate.start_at(self._mean / self._scale)
        self._networks = nn.ModuleList([self._encoder, self._count, self._generate])
        self._optimizer = torch.optim.Adam(
            self._networks.parameters(), lr=settings.learning_rate, weight_decay=settings.weight_decay
        )
        self._steps = 0
        order = seeded_generator(*self._purpose, "halves").permutation(len(counts))
        self._first_half = torch.from_numpy(order % 2 == 0)
        self._best, self._best_step, self._best_networks = np.inf, 0, dict[str, Any]()
        self._look()

    def train_locally(self, epochs: int) -> list[float]:
        """At most so many steps without the other clients, then back to the best; the loss before each step."""
        losses = []
        for _ in range(epochs):
            losses.append(self.learn(None))
            if self._steps - self._best_step >= _PATIENCE:
                break
        self._go_back()
        return losses

    def question(self) -> dict[str, np.ndarray]:
        """What the other clients are sent before a step.

        Returns:
            ``inputs``: float32, shape (r, latent); an embedding with noise for every neighbour that is hidden.
            ``parameters``: float32, shape (d,), those of fGen; ``scale``: float32, shape (), s.
        """
        with torch.no_grad():
            prediction = self._predict_impaired(self._impaired())
        return {
            "inputs": prediction.noisy.numpy(),
            "parameters": parameters_to_vector(self._generate.parameters()).detach().numpy(),
            "scale": np.array(self._scale, np.float32),
        }

    def answer(self, question: Mapping[str, np.ndarray]) -> np.ndarray:
        """This client's term for another client's generator; depends on this client's features alone.

        Returns:
            Float32, shape (d,): the gradient, with respect to fGen, of the mean over the generated neighbours of
            min over u in V_j: ||x~ - x_u||^2 / (f s^2).
        """
        parameters, inputs = torch.tensor(question["parameters"], requires_grad=True), torch.tensor(question["inputs"])
        if not self.graph.num_nodes or not len(inputs):
            return np.zeros(len(parameters), np.float32)
        shapes = {name: value.shape for name, value in self._generate.named_parameters()}
        parts = parameters.split([shape.numel() for shape in shapes.values()])
        views = {name: part.view(shape) for part, (name, shape) in zip(parts, shapes.items(), strict=True)}
        generated = torch.func.functional_call(self._generate, views, (inputs,))
        features = torch.from_numpy(self.graph.features) / float(question["scale"])  # in the asker's units, s
        loss = _distance(generated, features[nearest(generated.detach(), features)]) / generated.numel()
        (gradient,) = torch.autograd.grad(loss, parameters)
        return gradient.numpy()

    def learn(self, answer: np.ndarray | None) -> float:
        """One step of Adam on L^d + L^f.

        Args:
            answer: the sum of the other clients' answers to the `question` of this very step; None: alpha is 0.

        Returns:
            The loss for alpha = 0 before the step.
        """
        impaired = self._impaired()
        prediction = self._predict_impaired(impaired)
        loss = self._local_loss(impaired, prediction)
        gradients = torch.autograd.grad(loss, list(self._networks.parameters()), materialize_grads=True)
        for parameter, gradient in zip(self._networks.parameters(), gradients, strict=True):
            parameter.grad = gradient
        if answer is not None:
            weight = self.settings.cross_weight * len(prediction.owners) / max(1, len(impaired.kept))
            own = list(self._generate.parameters())
            parts = torch.tensor(answer).split([parameter.numel() for parameter in own])
            for parameter, part in zip(own, parts, strict=True):
                assert parameter.grad is not None  # it was set above
                parameter.grad.add_(part.view_as(parameter), alpha=weight)
        self._optimizer.step()
        self._steps += 1
        if self._steps % _LOOK == 0:
            self._look()
        return loss.item()

    def finish(self) -> dict[str, float]:
        """Go back to the networks of the best step.

        Returns:
            What the second half says. ``generator_features``: L^f for alpha = 0, divided by that of the mean feature.
            ``generator_counts``: the mean squared error of n~_v, divided by that of the best constant. Below 1
            something was learnt. Above 1 is possible: the two halves are different nodes, and small clients' are few.
            NaN where the second half has nothing to compare with.
        """
        self._go_back()
        prediction, generated = self._on_held_out()
        error = self._held_out_distance(prediction.owners, generated)
        trivial = self._held_out_distance(prediction.owners, self._mean.expand_as(generated))
        second = ~self._first_half
        counts, predicted = self._counts(self._held_out)[second].double(), prediction.counts[second]
        spread = (counts - counts.mean()).square().sum().item()
        missed = (predicted - counts).square().sum().item()
        return {
            "generator_features": error / trivial if trivial else np.nan,
            "generator_counts": missed / spread if spread else np.nan,
        }

    @torch.no_grad()
    def generated(self) -> tuple[np.ndarray, np.ndarray]:
        """The neighbours generated for the client's whole graph, as `impairment.mend` takes them.

        Each node gets n~_v of them in the mean, and at most `settings.candidates`.

        Returns:
            The node that each is a neighbour of, int64, shape (r,), and their features, float32, shape (r, f).
        """
        prediction = self._predict(self.graph, None, False, "mending")
        return prediction.owners.numpy(), (self._scale * self._generate(prediction.noisy)).numpy()

    @property
    def _unit(self) -> float:
        """f s^2."""
        return self._scale**2 * max(1, self.graph.num_features)

    @contextmanager
    def _random(self, *purpose: str | int) -> Iterator[None]:
        """PyTorch's own generator is seeded for this purpose, and afterwards as it was."""
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(derived_seed(*self._purpose, *purpose))
            yield

    def _hide(self, graph: Graph, *purpose: str | int) -> Impairment:
        rng = seeded_generator(*self._purpose, *purpose, "impairment")
        return impair(graph, self.settings.hidden_share, self.settings.hide_from, rng)

    def _impaired(self) -> Impairment:
        """What this step learns from."""
        return self._hide(self._held_out.graph, "step", self._steps)

    def _predict_impaired(self, impaired: Impairment) -> _Prediction:
        """As many neighbours as are hidden: n~_v, which dGen is to learn, is known here."""
        return self._predict(impaired.graph, self._counts(impaired), True, "step", self._steps)

    @staticmethod
    def _counts(impaired: Impairment) -> Tensor:
        return torch.from_numpy(impaired.counts)

    def _predict(self, graph: Graph, size: Tensor | None, training: bool, *purpose: str | int) -> _Prediction:
        """Args: size: int64, (n,), how many neighbours every node gets; None: n~_v, rounded at random."""
        arcs = torch.from_numpy(np.concatenate([graph.edges, graph.edges[::-1]], axis=1))
        with self._random(*purpose):
            self._encoder.train(training)
            # In units of s a row has norm sqrt(f), and embeddings would begin far from 1
            embeddings = self._encoder(torch.from_numpy(graph.features) / self._unit**0.5, arcs)
            counts = self._count(embeddings)[:, 0]
            if size is None:
                size = (counts + torch.rand(len(counts))).long().clamp(max=self.settings.candidates)
            owners = torch.repeat_interleave(torch.arange(len(counts)), size)
            spread = embeddings.detach().std(correction=0) if len(counts) else torch.zeros(())
            noise = self.settings.noise * spread * torch.randn(len(owners), embeddings.shape[1])
        return _Prediction(counts, owners, embeddings[owners] + noise)

    def _local_loss(self, impaired: Impairment, prediction: _Prediction) -> Tensor:
        """L^d + L^f for alpha = 0."""
        generated = self._scale * self._generate(prediction.noisy)
        rows, true = _matched(self._held_out.graph, impaired, prediction.owners, generated)
        counting = F.smooth_l1_loss(prediction.counts, self._counts(impaired).float(), reduction="sum")
        return (counting + _distance(generated[rows], true) / self._unit) / max(1, len(impaired.kept))

    @torch.no_grad()
    def _on_held_out(self) -> tuple[_Prediction, Tensor]:
        """As many neighbours as are held out, and their generated features, float32, shape (r, f)."""
        prediction = self._predict(self._held_out.graph, self._counts(self._held_out), False, "held out")
        return prediction, self._scale * self._generate(prediction.noisy)

    def _held_out_distance(self, owners: Tensor, generated: Tensor, first: bool = False) -> float:
        """The sum over one half's generated neighbours of the squared distance to its nearest held-out one."""
        chosen = self._first_half[owners] == first
        rows, true = _matched(self.graph, self._held_out, owners[chosen], generated[chosen])
        return _distance(generated[chosen][rows], true).item()

    def _look(self) -> None:
        """Remember the networks if L^d + L^f of the first half and its held-out neighbours never was smaller."""
        prediction, generated = self._on_held_out()
        first = self._first_half
        counting = F.smooth_l1_loss(prediction.counts[first], self._counts(self._held_out)[first], reduction="sum")
        loss = counting.item() + self._held_out_distance(prediction.owners, generated, first=True) / self._unit
        if loss < self._best:
            self._best, self._best_step = loss, self._steps
            self._best_networks = {name: value.clone() for name, value in self._networks.state_dict().items()}

    def _go_back(self) -> None:
        self._look()
        self._networks.load_state_dict(self._best_networks)


def _matched(whole: Graph, impaired: Impairment, owners: Tensor, generated: Tensor) -> tuple[Tensor, Tensor]:
    """Which generated neighbours, shape (r, f), have a hidden one to be compared with, int64, shape (r',), and the
    features of the nearest of these, float32, shape (r', f). Args: whole: what was impaired; owners: int64, shape (r,).
    """
    features = torch.from_numpy(whole.features)
    rows, hidden = nearest_neighbour(generated, features, impaired.hidden_neighbours[owners.numpy()])
    return rows, features[hidden]


def _distance(left: Tensor, right: Tensor) -> Tensor:
    """The sum over the rows of the squared Euclidean distance."""
    return (left - right).square().sum()


@torch.no_grad()
def nearest(points: Tensor, targets: Tensor) -> Tensor:
    """For every point, shape (r, f), the number of the closest target, shape (t, f), t > 0: int64, shape (r,).

    Distances are ||t||^2 - 2 p.t up to ||p||^2, a matrix product for a block of points at a time. The minimum itself
    is left to the caller, whose gradient then needs no r x t distances.
    """
    norms = targets.square().sum(1)
    blocks = points.split(max(1, _BLOCK // len(targets)))
    return torch.cat([(norms - 2 * block @ targets.T).argmin(1) for block in blocks])


@torch.no_grad()
def nearest_neighbour(points: Tensor, targets: Tensor, allowed: csr_array) -> tuple[Tensor, Tensor]:
    """The same where a point may be compared with some targets only.

    Args:
        allowed: sparse, shape (r, t).

    Returns:
        The points with an allowed target, ascending, and the closest such target of each: int64, shape (r',).
    """
    rows = torch.from_numpy(np.repeat(np.arange(len(points)), np.diff(allowed.indptr)))
    columns = torch.from_numpy(allowed.indices).long()
    size = max(1, _BLOCK // max(1, points.shape[1]))
    pairs = zip(rows.split(size), columns.split(size), strict=True)
    distances = torch.cat([(points[row] - targets[column]).square().sum(1) for row, column in pairs])
    order = np.lexsort((distances.numpy(), rows.numpy()))
    found, first = np.unique(rows.numpy()[order], return_index=True)
    return torch.from_numpy(found), columns[order[first]]
