"""Pairwise masks: exact sums, whoever drops out; what the server sees alone is uniform; shares below t say nothing."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from orchestrator.coordinator.masked_sum import Client, Server, _joined, _split, masked_sum, threshold


def vectors(cohort, length=7, seed=0):
    rng = np.random.default_rng(seed)
    return {u: rng.integers(0, 2**64, length, dtype=np.uint64) for u in range(cohort)}


@settings(max_examples=25)
@given(st.data())
def test_the_sum_is_exact_whoever_drops_out(data):
    cohort = data.draw(st.integers(1, 7))
    gone = data.draw(st.sets(st.integers(0, cohort - 1), max_size=cohort - threshold(cohort)))
    kept = {u: vector for u, vector in vectors(cohort).items() if u not in gone}
    found = masked_sum(kept, cohort)
    np.testing.assert_array_equal(found.total, np.sum(list(kept.values()), axis=0, dtype=np.uint64))


def test_too_few_are_refused():
    few = dict(list(vectors(6).items())[: threshold(6) - 1])
    with pytest.raises(ValueError, match="4 of 6 clients are left; the masks need 5"):
        masked_sum(few, 6)


@pytest.mark.parametrize("size", [16, 32])
def test_any_t_shares_give_the_secret_and_fewer_do_not(size):
    secret = bytes(range(size))
    shares = dict(enumerate(_split(secret, 3, 5)))
    for chosen in ([0, 1, 2], [1, 3, 4], [0, 2, 4]):
        assert _joined({u: shares[u] for u in chosen}, 3) == secret
    assert _joined({u: shares[u] for u in (0, 1)}, 2) != secret
    assert len({shares[u] for u in shares}) == 5 and all(len(share) == size for share in shares.values())


def played(cohort, present, length=4000):
    """A round by hand: clients, what the server saw, what was revealed."""
    clients = [Client(u, cohort) for u in range(cohort)]
    keys = [client.keys() for client in clients]
    sealed = [client.share(keys) for client in clients]
    zeros = np.zeros(length, np.uint64)
    masked = {u: clients[u].masked([text[u] for text in sealed], zeros) for u in present}
    return keys, sealed, masked, {u: clients[u].reveal(set(present)) for u in present}


def test_a_masked_vector_is_uniform_and_a_sum_of_two_is_too():
    _, _, masked, _ = played(4, range(4))
    for seen in (*masked.values(), masked[0] + masked[1]):
        bits = np.unpackbits(seen.view(np.uint8)).mean()
        assert abs(bits - 0.5) < 5 * 0.5 / np.sqrt(64 * len(seen))
        assert len(np.unique(seen)) == len(seen)


def test_of_nobody_seed_and_key_are_both_revealed():
    _, _, _, revealed = played(4, [0, 1, 3])
    for said in revealed.values():
        assert [len(share) for share in said] == [16, 16, 32, 16]  # a seed's share, or a key's


def test_a_sealed_pair_opens_for_its_client_alone_and_is_no_other_ones():
    from cryptography.exceptions import InvalidTag

    clients = [Client(u, 3) for u in range(3)]
    keys = [client.keys() for client in clients]
    sealed = [client.share(keys) for client in clients]
    with pytest.raises(InvalidTag):
        clients[1].masked([text[2] for text in sealed], np.zeros(3, np.uint64))
    swapped = [sealed[1][0], sealed[0][0], sealed[2][0]]
    with pytest.raises(InvalidTag):
        clients[0].masked(swapped, np.zeros(3, np.uint64))


def test_the_server_needs_the_shares_of_who_is_gone():
    keys, _, masked, revealed = played(4, [0, 1, 3], 50)
    assert not Server(keys).unmask(masked, revealed).any()
    wrong = {u: [*said[:2], bytes(32), said[3]] for u, said in revealed.items()}
    assert Server(keys).unmask(masked, wrong).any()


def test_bytes_are_those_of_the_messages():
    q, d = 6, 1000
    found = masked_sum(vectors(q, d), q)
    sealed, shares = q * (16 + 32 + 16), q * 16
    assert found.sent == 64 + sealed + 8 * d + shares
    assert found.received == 64 * q + sealed + 1 and found.exchanges == 4


def test_secrets_are_not_shown():
    client = Client(0, 3)
    assert client._own.hex() not in repr(client) and "own" not in repr(client)
