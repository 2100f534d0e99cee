"""FedFairGNN's gradients, its score and multiplier, and the linear program that its rule approaches."""

from __future__ import annotations

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from scipy.optimize import linprog
from scipy.special import expit
from sklearn.metrics import roc_auc_score

from mpc_programs.rules import RoundParameters
from orchestrator.agreement.from_settings import plan_of
from orchestrator.config import load_config
from orchestrator.coordinator.audit import float64_aggregate
from orchestrator.errors import ConfigError
from orchestrator.evaluation.metrics import Evaluator
from orchestrator.methods import create
from orchestrator.methods.base import LocalUpdate
from orchestrator.methods.fedfairgnn import recombined
from orchestrator.models import create_network


def config(name="fedfairgnn", **method):
    own = {"name": name, "local_epochs": 4, "learning_rate": 1e-2, "weight_decay": 0.0} | method
    return load_config(overrides=[f"method={own}".replace("'", ""), "model={hidden: 6, dropout: 0.0}"])


def start(graph, own, multiplier=0.0):
    model = create_network(graph.num_features, graph.classes, own.model).initial_parameters(0)
    return np.append(model.astype(np.float32).astype(np.float64), multiplier)


def parity(p, s):
    return abs(p[s == 1].mean() - p[s == 0].mean())


@pytest.mark.parametrize(("lam", "clip"), [(3.0, 0.02), (0.5, 100.0)])
def test_training_is_that_of_the_decomposed_gradient(make_graph, lam, clip):
    graph, own = make_graph(), config(parity=lam, fair_clip=clip)
    released = start(graph, own)
    found = released[:-1] - create(graph, own, 0).train(released).delta[:-1]
    net, nodes = create_network(graph.num_features, 2, own.model), torch.from_numpy(np.flatnonzero(graph.train))
    s, y = graph.sensitive[graph.train], torch.from_numpy(graph.labels[graph.train]).float()
    w = torch.tensor(released[:-1], dtype=torch.float32, requires_grad=True)
    adam = torch.optim.Adam([w], lr=1e-2)
    for _ in range(4):
        z = net.logits(w[None], net.tensors(graph))[nodes]
        [task] = torch.autograd.grad(F.binary_cross_entropy_with_logits(z, y), w, retain_graph=True)
        [fair] = torch.autograd.grad(lam * parity(torch.sigmoid(z), torch.from_numpy(s)), w)
        total = task + fair
        orthogonal = total - (total @ fair) / (fair @ fair) * fair
        assert abs(orthogonal @ fair) < 1e-6
        w.grad = orthogonal + fair * min(1.0, clip / float(fair.norm()))
        adam.step()
    np.testing.assert_allclose(found, w.detach().numpy(), atol=5e-5)


def test_a_client_without_both_groups_has_the_gradient_of_its_task():
    total = torch.randn(2, 5, generator=torch.Generator().manual_seed(0))
    np.testing.assert_array_equal(recombined(total, torch.zeros(2, 5), 1.0).numpy(), total.numpy())


@pytest.mark.parametrize("multiplier", [0.0, 0.4])
def test_score_and_multiplier_are_of_the_local_model_on_validation_nodes(make_graph, multiplier):
    graph, own = make_graph(), config(budget=0.02, dual_step=2.0, temperature=0.25)
    released = start(graph, own, multiplier)
    update = create(graph, own, 0).train(released)
    z = Evaluator(graph, own.model).logits((released - update.delta)[:-1])[graph.val, 1]
    performance, gap = roc_auc_score(graph.labels[graph.val], z), parity(expit(z), graph.sensitive[graph.val])
    assert update.scores["score"] == pytest.approx((performance - multiplier * gap + 1) / 0.25, abs=1e-5)
    assert released[-1] - update.delta[-1] == pytest.approx(np.clip(multiplier + 2 * (gap - 0.02), 0, 1), abs=1e-6)


def test_the_released_multiplier_rises_by_the_weighted_mean_of_gaps_less_the_budget(make_graph):
    """The paper's dual step, mu + eta (sum_k w_k DPD_k - tau), where no cap is met."""
    own, graphs = config(budget=0.01), [make_graph(40, 90), make_graph(30, 60)]
    released = start(graphs[0], own, 0.5)
    updates = [create(graph, own, c).train(released) for c, graph in enumerate(graphs)]
    rule = RoundParameters("softmax", 2, **own.method.rule_parameters(own.model))
    scores = np.array([update.scores["score"] for update in updates])
    weights = np.exp(scores) / np.exp(scores).sum()
    gaps = []
    for graph, update in zip(graphs, updates, strict=True):
        z = Evaluator(graph, own.model).logits((released - update.delta)[:-1])[graph.val, 1]
        gaps.append(parity(expit(z), graph.sensitive[graph.val]))
    after = float64_aggregate(released, rule, None, updates)[-1]
    assert after == pytest.approx(0.5 + own.method.dual_step * (weights @ gaps - 0.01), abs=1e-6)


def test_at_a_low_temperature_the_weights_are_the_linear_programs():
    """max sum w Perf - mu sum w DPD over the simplex puts all weight on one client; T to 0 is that."""
    rng = np.random.default_rng(4)
    own = config(temperature=0.05)
    rule = RoundParameters("softmax", 5, **own.method.rule_parameters(own.model))
    performance, gap, mu = np.array([0.1, 0.9, 0.5, 0.8, 0.2]), rng.random(5) / 10, 0.7
    best = linprog(mu * gap - performance, A_eq=np.ones((1, 5)), b_eq=[1.0]).x
    scores = (performance - mu * gap + 1) / 0.05
    uploads = [LocalUpdate(delta, 1.0, {"score": score}) for delta, score in zip(np.eye(5), scores, strict=True)]
    np.testing.assert_allclose(-float64_aggregate(np.zeros(5), rule, None, uploads), best, atol=0.2)


def test_the_penalty_lowers_the_clients_own_gap(make_graph):
    graph = make_graph(120, 200)
    features = graph.features + np.where(graph.sensitive == 1, 1.5, -1.5)[:, None]
    object.__setattr__(graph, "features", features.astype(np.float32))
    labels = np.where(np.arange(120) % 7 < 5, graph.sensitive, graph.labels).astype(np.int8)
    object.__setattr__(graph, "labels", labels)
    late = {}
    for lam in (0.0, 2.0):
        own = config(parity=lam, local_epochs=150)
        model = (start(graph, own) - create(graph, own, 0).train(start(graph, own)).delta)[:-1]
        p = expit(Evaluator(graph, own.model).logits(model)[graph.train, 1])
        late[lam] = parity(p, graph.sensitive[graph.train])
    assert late[2.0] < late[0.0] / 2, late


def test_a_temperature_that_a_fixed_denominator_cannot_have_is_refused_by_name():
    poisson = "federation.sampling=poisson"
    privacy = "privacy={clip_norm: 1, noise_multiplier: 1, sensitivity: bounded_weights}"
    for temperature, fits in ((0.25, True), (0.2, False)):
        own = load_config(overrides=[f"method={{name: fedfairgnn, temperature: {temperature}}}", poisson, privacy])
        if fits:
            assert plan_of(own).parameters.fairness_max == 8
        else:
            with pytest.raises(ConfigError, match=r"score's range is 10 \(method\.sharpness, method\.temperature\)"):
                plan_of(own)
