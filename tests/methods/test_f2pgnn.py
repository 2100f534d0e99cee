"""F2PGNN's factors against the paper's equation, the ledger's figures, and the clients' own noise."""

from __future__ import annotations

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from scipy.special import expit
from scipy.stats import kstest, norm

from orchestrator.config import load_config
from orchestrator.errors import ConfigError
from orchestrator.evaluation.metrics import Evaluator
from orchestrator.methods import create
from orchestrator.models import create_network
from orchestrator.privacy.plan import PrivacyPlan


def config(name="f2pgnn", **method):
    own = {"name": name, "local_epochs": 4, "learning_rate": 1e-2, "weight_decay": 0.0} | method
    return load_config(overrides=[f"method={own}".replace("'", ""), "model={hidden: 6, dropout: 0.0}"])


def start(graph, own, p=0.0, q=0.0, sizes=(0.0, 0.0)):
    model = create_network(graph.num_features, graph.classes, own.model).initial_parameters(0)
    model = model.astype(np.float32).astype(np.float64)
    return np.append(model, [*sizes, p * sizes[0], q * sizes[1]])


@pytest.mark.parametrize(("alpha", "p", "q"), [(1, 0.8, 0.6), (1, 0.6, 0.8), (2, 0.9, 0.5), (1, 0.7, 0.7)])
def test_each_groups_gradient_is_scaled_as_the_paper_says(make_graph, alpha, p, q):
    """L = 1 - beta R |P - Q|^(alpha - 1), R = alpha (-1)^[P < Q] (-1)^[u not in group 0]; 0 where P = Q."""
    beta, graph = 0.4, make_graph()
    own = config(scale=beta, power=alpha)
    released = start(graph, own, p, q, (0.3, 0.6))
    found = released[:-4] - create(graph, own, 0).train(released).delta[:-4]
    s, nodes = graph.sensitive[graph.train], torch.from_numpy(np.flatnonzero(graph.train))
    factors = []
    for group in s:
        r = 0 if p == q else alpha * (-1) ** (p < q) * (-1) ** (group != 0)
        factors.append(1 - beta * r * abs(p - q) ** (alpha - 1))
    net, y = create_network(graph.num_features, 2, own.model), torch.from_numpy(graph.labels[graph.train]).float()
    w = torch.tensor(released[:-4], dtype=torch.float32, requires_grad=True)
    adam = torch.optim.Adam([w], lr=1e-2)
    for _ in range(4):
        adam.zero_grad()
        losses = F.binary_cross_entropy_with_logits(net.logits(w[None], net.tensors(graph))[nodes], y, reduction="none")
        (torch.tensor(factors, dtype=torch.float32) * losses).mean().backward()
        adam.step()
    np.testing.assert_allclose(found, w.detach().numpy(), atol=2e-5)


def test_the_ledger_tells_each_groups_performance(make_graph):
    own, graphs = config(rate=1.0), [make_graph(40, 90), make_graph(30, 60), make_graph(train="one group")]
    released = start(graphs[0], own)
    moves = [create(graph, own, c).train(released).delta[-4:] for c, graph in enumerate(graphs)]
    sizes, sums = (released[-4:] - np.mean(moves, axis=0)).reshape(2, 2)
    told, weight, groups = [], [], []
    for graph in graphs:
        p = expit(Evaluator(graph, own.model).logits(released[:-4])[graph.train, 1])
        told += list(1 - (p - graph.labels[graph.train]) ** 2)
        groups += list(graph.sensitive[graph.train])
        weight += [1 / graph.train.sum()] * int(graph.train.sum())
    told, weight, groups = map(np.array, (told, weight, groups))
    for g in (0, 1):
        assert sums[g] / sizes[g] == pytest.approx(np.average(told[groups == g], weights=weight[groups == g]), abs=1e-6)


def test_without_a_budget_and_before_a_group_is_known_it_is_fedavg(make_graph):
    graph = make_graph()
    plain = create(graph, config("fedavg"), 0).train(start(graph, config("fedavg"))[:-4])
    for own, ledger in ((config(scale=0.0), (0.9, 0.1, (0.5, 0.5))), (config(), (0.0, 0.0, (0.0, 0.0)))):
        update = create(graph, own, 0).train(start(graph, own, *ledger))
        np.testing.assert_allclose(update.delta[:-4], plain.delta, atol=2e-6)


def test_noise_is_gaussian_of_the_stated_size_and_never_the_same(make_graph):
    graph, own = make_graph(20, 30, 300), config(local_clip=0.01, local_noise=1.5)
    released = start(graph, own)
    client = create(graph, own, 0)
    state = client.state_dict()
    uploads = []
    for _ in range(2):
        client.load_state_dict(state)
        uploads.append(client.train(released))
    noise = (uploads[0].delta - uploads[1].delta) / np.sqrt(2)  # of the same update, clipped to the same
    assert kstest(noise / (1.5 * 2 * 0.01), norm.cdf).pvalue > 1e-4
    clean = create(graph, config(), 0).train(released)
    pull = np.mean([upload.delta for upload in uploads], axis=0) @ clean.delta / clean.norm
    assert clean.norm > 0.1 and abs(pull - 0.01) < 5 * 1.5 * 2 * 0.01
    assert uploads[0].norm == pytest.approx(np.linalg.norm(uploads[0].delta))


def test_a_clip_without_noise_changes_nothing_and_noise_needs_a_clip(make_graph):
    graph = make_graph()
    released = start(graph, config())
    updates = [create(graph, own, 0).train(released).delta for own in (config(), config(local_clip=1e-3))]
    np.testing.assert_array_equal(*updates)
    with pytest.raises(ConfigError, match=r"method\.local_noise is relative to method\.local_clip: set that too"):
        config(local_noise=1.0)


@pytest.mark.parametrize(("noise", "times"), [(5.0, 40), (2.0, 3)])
def test_the_pages_command_accounts_for_a_clients_own_noise(noise, times):
    """A server's view of a cohort of one with the other one's full noise: the Gaussian mechanism, so many times."""
    plan = PrivacyPlan("fixed", 1, 1, noise, 1e-5, "tightest", "each_full", sensitivity=1.0, amplified=False)
    epsilon, mu = plan.epsilon(times, "server"), np.sqrt(times) / noise
    delta = norm.cdf(-epsilon / mu + mu / 2) - np.exp(epsilon) * norm.cdf(-epsilon / mu - mu / 2)
    assert 0.9e-5 < delta <= 1e-5  # Balle and Wang's exact curve
