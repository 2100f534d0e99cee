"""What docs/who-sees-what.md says of a server whose operator is a client too: nothing here is protected against it."""

import numpy as np

from mpc_programs.rules import RoundParameters
from orchestrator.server import aggregation as program
from tests.server import test_aggregation as test_program
from tests.server.test_aggregation import FORMAT, decode, make_uploads, round_on_shares


def test_in_a_cohort_of_two_it_knows_the_other_ones_update(monkeypatch):
    """From its own masks, the factors' opening, its own update and the released model."""
    masks, opened = [], []
    open_ring64, aggregate = program.open_ring64, test_program.aggregate

    async def watch(masked, reason):
        opened.append(await open_ring64(masked, reason=reason))
        return opened[-1]

    def begin(ops, parameters, vectors, uploads, *rest):
        masks.append(uploads[0].update.factor_masks)  # client 0 has made both shares
        return aggregate(ops, parameters, vectors, uploads, *rest)

    monkeypatch.setattr(program, "open_ring64", watch)
    monkeypatch.setattr(test_program, "aggregate", begin)
    model, (own, other) = np.linspace(-1, 1, 50), make_uploads(2, 50, seed=3)
    released = decode(round_on_shares(RoundParameters("f2gnn", 2), model, [own, other])[0])
    factor = np.ldexp(float((opened[0][:1] + masks[0] + masks[1]).view(np.int64)[0]), -FORMAT.weight_bits)
    assert 0.1 < factor < 0.9
    np.testing.assert_allclose((model - released - factor * own.delta) / (1 - factor), other.delta, atol=1e-6)
