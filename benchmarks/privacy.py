"""The tables of docs/privacy.md: what each accountant says about the paper's setting, and the sensitivity by rule.

python benchmarks/privacy.py
"""

from __future__ import annotations

from mpc_programs.rules import RoundParameters
from orchestrator.privacy.plan import PrivacyPlan
from orchestrator.privacy.sensitivity import largest_weight, replacement_bound

ACCOUNTS = (
    ("paper: Poisson, classic conversion", "fixed", "paper", "outsider"),
    ("Poisson, rdp", "poisson", "rdp", "outsider"),
    ("Poisson, pld", "poisson", "pld", "outsider"),
    ("fixed size, rdp", "fixed", "rdp", "outsider"),
    ("fixed size, pld", "fixed", "pld", "outsider"),
    ("fixed size, pld, another client", "fixed", "pld", "client"),
    ("fixed size, pld, a server, for a client in every round", "fixed", "pld", "server"),
)


def accounts() -> str:
    """Epsilon in SaFeGNN's setting, sigma = 1.341 in sum, split, and 3 of 30 clients, as a Markdown table."""
    lines = ["| accounting | T = 1, δ = 1e-3 | T = 500, δ = 1e-2 | δ = 1e-3 | δ = 1e-5 |", "|---|---|---|---|---|"]
    for label, sampler, accountant, view in ACCOUNTS:
        cells = []
        for rounds, delta in ((1, 1e-3), (500, 1e-2), (500, 1e-3), (500, 1e-5)):
            plan = PrivacyPlan(sampler, 30, 3, 1.341, delta, accountant, "split")
            cells.append(f"{plan.epsilon(rounds, view):.2f}")
        lines.append(f"| {label} | {' | '.join(cells)} |")
    return "\n".join(lines)


def sensitivities() -> str:
    """Sensitivities over C in exact arithmetic, fairness scores up to 2, tau = 4, as a Markdown table."""
    lines = [
        "| q | λ | f2gnn, replace-one | of it attained | f2gnn, fixed denominator | fedavg, replace-one | worst case |",
        "|---|---|---|---|---|---|---|",
    ]
    for q in (3, 30, 300, 1000):
        for lam in (0.5, 8.0):
            p = RoundParameters("f2gnn", q, lam, 4.0, 2.0, expected=q)
            fixed = p.fixed_denominator.largest_weight
            values = (replacement_bound(p), 2 * largest_weight(p), fixed, 2 / q, 2.0)
            lines.append(f"| {q:,} | {lam:g} | {' | '.join(f'{value:.3g}' for value in values)} |")
    return "\n".join(lines)


if __name__ == "__main__":
    print(accounts(), end="\n\n")
    print(sensitivities())
