"""NeighGen, the missing-neighbour generator of FedSage+: Zhang et al. (NeurIPS 2021), sections 4.1 and 4.2.

For a node v with embedding z_v = H^e(v), the encoder H^e a two-layer GraphSAGE, it predicts

    n~_v = relu(w . z_v + b)                     dGen: how many neighbours v lacks
    x~_v = R(sigma(MLP(z_v + N(0, 1))), n~_v)    fGen: their features; the sampler R draws n~_v of the candidates

It learns from a graph of which h % of the nodes are hidden. With V the k remaining nodes, n_v the number of hidden
neighbours of v, and V_j the nodes of another client,

    L^d = 1/k sum_v smooth_l1(n~_v - n_v)
    L^f = 1/k sum_v sum_p ( min over hidden neighbours u of v: ||x~_v^p - x_u||^2
                            + alpha sum_{j != i} min over u in V_j: ||x~_v^p - x_u||^2 )

and one step of Adam follows the gradient of L^d + L^f. The terms of the other clients need their features, which do
not leave them. Client i sends its fGen and the inputs of fGen, client j sends the gradient of its term with respect to
fGen back. Embeddings are constants there, so these terms train fGen alone: the encoder stays with its client. The
noise is fGen's and not scaled to anything: it gives the embeddings no differential privacy.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from scipy.sparse import csr_array
from torch import Tensor, nn
from torch.nn.utils import parameters_to_vector
from torch_geometric.nn import SAGEConv

from orchestrator.graphs.graph import Graph
from orchestrator.methods.fedsage.impairment import impair
from orchestrator.methods.fedsage.settings import GeneratorSettings
from orchestrator.seeding import derived_seed, seeded_generator

__all__ = ["NeighbourGenerator", "nearest", "nearest_neighbour"]

_BLOCK = 2**22
"""Numbers in the largest temporary array of a search for nearest rows: 16 MB of float32."""


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
    """fGen after the noise, for the candidates that the sampler drew and no others.

    The last sigma is tanh, as in the reference code. It is about the identity near 0, where generated features start,
    and its range holds features of either sign up to 1, so that of row-normalised and of binary ones. There is no
    dropout: the client that answers a question then differentiates exactly the function that asked.
    """

    def __init__(self, num_features: int, settings: GeneratorSettings) -> None:
        super().__init__()
        first, second = settings.widths
        self.first, self.second = nn.Linear(settings.latent, first), nn.Linear(first, second)
        self.candidates = nn.ModuleList(nn.Linear(second, num_features) for _ in range(settings.candidates))

    def forward(self, noisy: Tensor, chosen: Tensor) -> Tensor:
        """Features of the chosen candidates in the order of `_owners`: float32, shape (r, f).

        Args:
            noisy: (n, latent).
            chosen: bool, (n, candidates), r of them true.
        """
        hidden = F.relu(self.second(F.relu(self.first(noisy))))
        return torch.tanh(torch.cat([last(hidden[chosen[:, p]]) for p, last in enumerate(self.candidates)]))


def _owners(chosen: Tensor) -> Tensor:
    """The node of every chosen candidate, candidate by candidate: int64, shape (r,)."""
    return chosen.T.nonzero()[:, 1]


class _Prediction(NamedTuple):
    """For n nodes: `counts` n~_v, float32, (n,); `noisy` the inputs of fGen, (n, latent); `chosen`, which candidates
    the sampler drew, bool, (n, candidates)."""

    counts: Tensor
    noisy: Tensor
    chosen: Tensor


class NeighbourGenerator:
    """One client's generator.

    Every random choice derives from the seed, the client and the number of steps taken, none from the process. So a
    question and the step that uses its answers see the same dropout, noise and samples.
    """

    def __init__(self, graph: Graph, settings: GeneratorSettings, seed: int, client: int) -> None:
        self.graph, self.settings = graph, settings
        self._purpose = (seed, "neighbour generator", client)
        rng = seeded_generator(*self._purpose, "impairment")
        self._impaired = impair(graph, settings.hidden_share, settings.hide_from, rng)
        self._counts = torch.from_numpy(self._impaired.counts)
        self._features = torch.from_numpy(graph.features)
        with self._random("initial"):
            self._encoder = Encoder(graph.num_features, settings)
            number = nn.Linear(settings.latent, 1)
            self._count = nn.Sequential(number, nn.ReLU())
            self._generate = FeatureGenerator(graph.num_features, settings)
        # dGen starts around the best constant, in the active part of its ReLU: where that is 0 nothing is learnt
        nn.init.constant_(number.bias, self._counts.float().mean().item())
        self._networks = nn.ModuleList([self._encoder, self._count, self._generate])
        self._optimizer = torch.optim.Adam(
            self._networks.parameters(), lr=settings.learning_rate, weight_decay=settings.weight_decay
        )
        self._steps = 0

    def train_locally(self, epochs: int) -> list[float]:
        """Steps without the other clients; the loss before each."""
        return [self.learn([]) for _ in range(epochs)]

    def question(self) -> dict[str, np.ndarray]:
        """What the other clients are sent before a step.

        Returns:
            ``embeddings``: float32, shape (q, latent); z_v + N(0, 1) of the q remaining nodes with a generated
            neighbour. ``chosen``: bool, shape (q, candidates); which of their candidates are drawn. ``parameters``:
            float32, shape (d,); those of fGen.
        """
        with torch.no_grad():
            prediction = self._predict_impaired()
        asked = prediction.chosen.any(1)
        return {
            "embeddings": prediction.noisy[asked].numpy(),
            "chosen": prediction.chosen[asked].numpy(),
            "parameters": parameters_to_vector(self._generate.parameters()).detach().numpy(),
        }

    def answer(self, question: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """This client's term for another client's generator; depends on this client's features alone.

        Returns:
            ``gradient``: float32, shape (d,), and ``loss``: float64, shape (), of the sum over the generated
            neighbours of min over u in V_j: ||x~ - x_u||^2.
        """
        parameters = torch.tensor(question["parameters"], requires_grad=True)
        chosen = torch.tensor(question["chosen"])
        if not self.graph.num_nodes or not chosen.any():
            return {"gradient": np.zeros(len(parameters), np.float32), "loss": np.zeros(())}
        shapes = {name: value.shape for name, value in self._generate.named_parameters()}
        parts = parameters.split([shape.numel() for shape in shapes.values()])
        views = {name: part.view(shape) for part, (name, shape) in zip(parts, shapes.items(), strict=True)}
        inputs = (torch.tensor(question["embeddings"]), chosen)
        generated = torch.func.functional_call(self._generate, views, inputs)
        loss = _distance(generated, self._features[nearest(generated.detach(), self._features)])
        (gradient,) = torch.autograd.grad(loss, parameters)
        return {"gradient": gradient.numpy(), "loss": np.array(loss.item())}

    def learn(self, answers: Sequence[Mapping[str, np.ndarray]]) -> float:
        """One step of Adam on L^d + L^f.

        Args:
            answers: those of the other clients to the `question` of this very step; none: alpha is 0.

        Returns:
            The loss before the step.
        """
        loss = self._local_loss()
        gradients = torch.autograd.grad(loss, list(self._networks.parameters()), materialize_grads=True)
        for parameter, gradient in zip(self._networks.parameters(), gradients, strict=True):
            parameter.grad = gradient
        total, scale = loss.item(), self.settings.cross_weight / max(1, len(self._impaired.kept))
        own = list(self._generate.parameters())
        for answer in answers:
            parts = torch.tensor(answer["gradient"]).split([parameter.numel() for parameter in own])
            for parameter, part in zip(own, parts, strict=True):
                assert parameter.grad is not None  # it was set above
                parameter.grad.add_(part.view_as(parameter), alpha=scale)
            total += scale * float(answer["loss"])
        self._optimizer.step()
        self._steps += 1
        return total

    @torch.no_grad()
    def generated(self) -> tuple[np.ndarray, np.ndarray]:
        """The neighbours generated for the client's whole graph, as `impairment.mend` takes them.

        Returns:
            The node that each is a neighbour of, int64, shape (r,), and their features, float32, shape (r, f).
        """
        self._encoder.eval()
        prediction = self._predict(self.graph, 0, "mending")
        self._encoder.train()
        features = self._generate(prediction.noisy, prediction.chosen)
        return _owners(prediction.chosen).numpy(), features.numpy()

    @contextmanager
    def _random(self, *purpose: str | int) -> Iterator[None]:
        """PyTorch's own generator is seeded for this purpose, and afterwards as it was."""
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(derived_seed(*self._purpose, *purpose))
            yield

    def _predict_impaired(self) -> _Prediction:
        # The sum over p in [n~_v] is empty until dGen says 1 or more, and fGen would learn nothing until then. The
        # true n_v, which dGen is to learn, is known here: as many neighbours are generated at least.
        return self._predict(self._impaired.graph, self._counts, "step", self._steps)

    def _predict(self, graph: Graph, at_least: Tensor | int, *purpose: str | int) -> _Prediction:
        arcs = torch.from_numpy(np.concatenate([graph.edges, graph.edges[::-1]], axis=1))
        with self._random(*purpose):
            embeddings = self._encoder(torch.from_numpy(graph.features), arcs)
            counts = self._count(embeddings)[:, 0]
            noisy = embeddings + torch.randn_like(embeddings)
            order = torch.arange(self.settings.candidates).expand(len(counts), -1)
            if self.settings.sampler == "random":
                order = torch.rand(order.shape).argsort(1)
        size = torch.maximum(counts.detach().round().long(), torch.as_tensor(at_least))
        return _Prediction(counts, noisy, order < size[:, None])

    def _local_loss(self) -> Tensor:
        """L^d + L^f for alpha = 0; the minimum over no hidden neighbours counts as 0."""
        prediction = self._predict_impaired()
        k = max(1, len(self._counts))
        counting = F.smooth_l1_loss(prediction.counts, self._counts.float(), reduction="sum")
        generated = self._generate(prediction.noisy, prediction.chosen)
        allowed = self._impaired.hidden_neighbours[_owners(prediction.chosen).numpy()]
        rows, hidden = nearest_neighbour(generated, self._features, allowed)
        return (counting + _distance(generated[rows], self._features[hidden])) / k


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
