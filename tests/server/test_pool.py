"""What is prepared ahead is made once, in order, and handed out once."""

import threading

import pytest

from orchestrator.errors import PeerLostError
from orchestrator.server.pool import Pool


def test_batches_are_made_in_order_and_handed_out_by_round():
    made = []

    def make(round):
        made.append(round)
        return f"batch {round}"

    pool = Pool(make, "test")
    pool.fill(3)
    pool.fill(4)
    assert pool.take(4)[0] == "batch 4"
    assert pool.take(3)[0] == "batch 3"
    assert made == [3, 4]


def test_a_batch_is_never_handed_out_twice():
    counter = iter(range(10))
    pool = Pool(lambda round: next(counter), "test")
    pool.fill(1)
    assert [pool.take(1)[0], pool.take(1)[0]] == [0, 1]


def test_filling_does_not_wait_and_taking_says_how_long_it_did():
    release = threading.Event()
    pool = Pool(lambda round: release.wait(20.0), "test")
    pool.fill(1)  # returns although the batch is not there
    threading.Timer(0.05, release.set).start()
    made, waited = pool.take(1)
    assert made
    assert 0 < waited < 20.0


def test_what_fails_in_the_background_is_raised_where_the_batch_is_needed():
    def make(round):
        raise PeerLostError("server 1", "preprocessing", round, "gone")

    pool = Pool(make, "test")
    pool.fill(5)
    with pytest.raises(PeerLostError, match="server 1"):
        pool.take(5)


def test_what_nobody_took_is_let_go():
    counter = iter(range(10))
    pool = Pool(lambda key: next(counter), "test")
    for round in (1, 2, 3):
        pool.fill((round, "terms"))
    pool.forget(lambda key: key[0] <= 2)
    assert list(pool._made) == [(3, "terms")]
    assert pool.take((3, "terms"))[0] == 2
    assert pool.take((1, "terms"))[0] == 3  # made anew
