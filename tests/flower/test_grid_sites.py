"""Requests to sites by name, over a network that the test is in control of. Needs no Flower."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from orchestrator.errors import PeerLostError, PeerTimeoutError
from orchestrator.flower.grid_sites import GridSites
from tests.flower.grid import FakePost, Node


def sites(post, names=("a", "b"), **options):
    return GridSites(post, names, wait=post.wait, clock=post.clock, **options)


def lost(site="a"):
    return PeerLostError(f"site {site}", "flower", 0, "Flower says: node unavailable")


def test_replies_come_as_they_are_ready_each_once():
    post = FakePost({7: Node("a", delay_sec=5.0), 8: Node("b", delay_sec=1.0)})

    replies = [(site, reply, post.now) for site, reply in sites(post).ask({"a": b"x", "b": b"y"}, 60)]

    assert [(site, reply) for site, reply, _ in replies] == [("b", b"re y"), ("a", b"re x")]
    assert replies[0][2] < replies[1][2]


def test_a_node_is_asked_for_its_name_once():
    post = FakePost({7: Node("a"), 8: Node("b")})
    transport = sites(post)

    for _ in range(3):
        assert dict(transport.ask({"a": b"x", "b": b"y"}, 60)) == {"a": b"re x", "b": b"re y"}

    assert sorted(post.introductions) == [7, 8]


def test_a_node_of_no_rostered_site_gets_no_request():
    post = FakePost({7: Node("a"), 9: Node("stranger")})

    transport = sites(post, ["a"])

    assert transport.gather(["a", "stranger"], 5) == ["stranger"]
    assert transport.present() == ["a"]
    assert isinstance(dict(transport.ask({"stranger": b"x"}, 60))["stranger"], PeerLostError)
    assert post.members[9].heard == []


def test_a_silent_site_costs_its_own_reply_alone():
    post = FakePost({7: Node("a", answer=lambda request: None), 8: Node("b")})

    replies = dict(sites(post).ask({"a": b"x", "b": b"y"}, 30))

    assert replies["b"] == b"re y"
    assert isinstance(replies["a"], PeerTimeoutError)
    assert replies["a"].peer == "site a"
    assert 30 <= post.now < 31


def test_a_site_without_a_node_is_not_waited_for_longer_than_others_need():
    post = FakePost({8: Node("b")})

    replies = dict(sites(post, absent_sec=15).ask({"a": b"x", "b": b"y"}, 600))

    assert replies["b"] == b"re y"
    assert isinstance(replies["a"], PeerLostError)
    assert post.now < 16


def test_a_site_that_joins_late_is_asked_when_it_is_there():
    post = FakePost({8: Node("b")})
    post.at[5.0] = lambda: post.members.update({7: Node("a")})

    assert dict(sites(post).ask({"a": b"x", "b": b"y"}, 60)) == {"a": b"re x", "b": b"re y"}


def test_a_node_that_is_lost_with_a_request_is_not_asked_again_and_its_successor_serves_the_next():
    post = FakePost({7: Node("a", answer=lambda request: lost())})
    transport = sites(post, ["a"])
    first = dict(transport.ask({"a": b"one"}, 60))
    old = post.members.pop(7)
    post.members[70] = Node("a")

    second = dict(transport.ask({"a": b"two"}, 60))

    assert isinstance(first["a"], PeerLostError)
    assert old.heard == [b"one"]
    assert second == {"a": b"re two"}


def test_the_last_node_that_says_a_name_has_it():
    post = FakePost({7: Node("a")})
    transport = sites(post, ["a"])
    assert transport.gather(["a"], 60) == []
    post.members[70] = Node("a")  # started again, while Flower still counts the old one as present
    post.wait(1)
    transport.present()
    post.wait(2)
    transport.present()

    assert dict(transport.ask({"a": b"x"}, 60)) == {"a": b"re x"}
    assert (post.members[7].heard, post.members[70].heard) == ([], [b"x"])


def test_what_could_not_be_sent_is_sent_when_the_node_is_back():
    post = FakePost({7: Node("a")})
    transport = sites(post, ["a"])
    transport.gather(["a"], 60)
    post.refused.add(7)
    post.at[post.now + 2] = post.refused.clear

    assert dict(transport.ask({"a": b"x"}, 60)) == {"a": b"re x"}
    assert post.members[7].heard == [b"x"]


def test_gathering_says_who_did_not_come():
    post = FakePost({8: Node("b")})

    assert sites(post).gather(["a", "b"], 20) == ["a"]
    assert 20 <= post.now < 21


def test_a_site_whose_node_has_left_is_not_asked_there():
    post = FakePost({7: Node("a")})
    transport = sites(post, ["a"])
    transport.gather(["a"], 60)
    left = post.members.pop(7)

    replies = dict(transport.ask({"a": b"x"}, 60))

    assert isinstance(replies["a"], PeerLostError)
    assert left.heard == []
    assert transport.present() == []


def test_a_node_that_left_and_returns_under_its_number_serves_again():
    post = FakePost({7: Node("a")})
    transport = sites(post, ["a"])
    transport.gather(["a"], 60)
    left = post.members.pop(7)
    assert isinstance(dict(transport.ask({"a": b"one"}, 60))["a"], PeerLostError)
    post.members[7] = left

    assert dict(transport.ask({"a": b"two"}, 60)) == {"a": b"re two"}


def test_a_late_reply_is_nobodys():
    """The next request is answered by its own reply, not by the one that came too late."""
    post = FakePost({7: Node("a", delay_sec=1.0)})
    transport = sites(post, ["a"])
    transport.gather(["a"], 60)
    post.members[7].delay_sec = 50.0
    assert isinstance(dict(transport.ask({"a": b"one"}, 10))["a"], PeerTimeoutError)
    post.members[7].delay_sec = 1.0
    post.wait(60)

    assert dict(transport.ask({"a": b"two"}, 10)) == {"a": b"re two"}


@given(
    delays=st.lists(st.one_of(st.none(), st.floats(0, 100)), min_size=1, max_size=6),
    absent=st.sets(st.integers(0, 5)),
    timeout=st.floats(0.5, 120),
)
def test_every_site_is_answered_exactly_once_and_in_time(delays, absent, timeout):
    names = [f"s{k}" for k in range(len(delays))]
    nodes = {
        k: Node(names[k], **({"answer": lambda request: None} if delay is None else {"delay_sec": delay}))
        for k, delay in enumerate(delays)
        if k not in absent
    }
    post = FakePost(nodes)

    replies = list(sites(post, names).ask({name: name.encode() for name in names}, timeout))

    assert sorted(site for site, _ in replies) == sorted(names)
    assert all(reply == b"re " + site.encode() for site, reply in replies if isinstance(reply, bytes))
    assert post.now <= timeout + 1
