import fcntl
import resource
import selectors
import socket
import struct
import threading
from concurrent.futures import ThreadPoolExecutor
from concurrent.futures import TimeoutError as FutureTimeout

import pytest

from orchestrator.errors import DisagreementError, PeerLostError, PeerTimeoutError
from orchestrator.transport.channel import Channel, Position, await_events, listen, ready
from orchestrator.transport.door import accept, connect


@pytest.fixture
def pair(connected):
    return connected(Position("online", 7), 0.3)


def test_messages_round_trip_and_are_counted(pair):
    left, right = pair
    left.send(b"")
    left.send_message({"a": 1, "b": b"\x00"})
    assert right.receive() == b""
    assert right.receive_message() == {"a": 1, "b": b"\x00"}
    assert left.sent_bytes == right.received_bytes > 8


@pytest.mark.parametrize("size", [0, 1, 65_535, 65_536, 65_537, 3_000_000])
def test_exchange_is_simultaneous_and_cannot_deadlock(connected, size):
    """Both sides send before either receives; with 3 MB no socket buffer would hold that."""
    left, right = connected(Position(), 20.0)
    got = []
    other = threading.Thread(target=lambda: got.append(right.exchange(b"r" * size)))
    other.start()
    assert left.exchange(b"l" * size) == b"r" * size
    other.join()
    assert got == [b"l" * size]
    assert left.sent_bytes == right.received_bytes == size + 4
    assert left.exchanges == right.exchanges == 1


@pytest.mark.parametrize("order", ["sends all before it reads", "reads all before it sends on"])
def test_a_long_exchange_goes_both_ways_at_once(connected, order):
    """Whatever the other side does first: taking turns would wait for what only comes later."""
    left, right = connected(Position(), 20.0)
    size = 3_000_000
    header = struct.pack("<I", size)

    def other():
        if order.startswith("sends"):
            right._write(header)
            for start in range(0, size, 1 << 16):
                right._write(bytes(min(1 << 16, size - start)))
            return right.receive()
        right._write(header + bytes(1 << 16))
        received = right.receive()
        for start in range(1 << 16, size, 1 << 16):
            right._write(bytes(min(1 << 16, size - start)))
        return received

    with ThreadPoolExecutor() as pool:
        heard = pool.submit(other)
        assert left.exchange(b"l" * size) == bytes(size)
        assert heard.result() == b"l" * size
    assert left.received_bytes == left.sent_bytes == size + 4


@pytest.mark.parametrize("size", [0, 10, 200_000])
def test_whoever_is_at_work_is_not_silent(connected, size):
    """Beats are no messages, before one and before an exchange, however they arrive."""
    left, right = connected(Position(), 0.5)
    with ThreadPoolExecutor() as pool:
        for beats in (1, 3):
            for _ in range(beats):
                left.beat()
            left.send(b"m" * size)
            assert right.receive() == b"m" * size
            for _ in range(beats):
                left.beat()
            heard = pool.submit(left.exchange, b"l" * size)
            assert right.exchange(b"r" * size) == b"l" * size
            assert heard.result() == b"r" * size
        waiting = pool.submit(right.receive)
        for _ in range(6):
            with pytest.raises(FutureTimeout):
                waiting.result(0.2)  # twice the limit in all
            left.beat()
        left.send(b"at last")
        assert waiting.result() == b"at last"


def test_what_is_decrypted_already_counts_as_arrived(pair):
    """Two messages in one record: the operating system has handed over both when the first one is read."""
    left, right = pair
    left._socket.sendall(struct.pack("<I", 1) + b"a" + struct.pack("<I", 1) + b"b")
    assert ready(pair, 20.0) == [right]
    assert right.receive() == b"a"
    assert ready(pair, 0.0) == [right]
    right.wait()
    assert right.receive() == b"b"
    assert ready(pair, 0.0) == []


def test_a_message_longer_than_the_longest_is_refused_unread(pair):
    left, right = pair
    left.send(b"1234")
    assert right.receive(4) == b"1234"
    left._socket.sendall(struct.pack("<I", 5))  # and nothing more: waiting for it would be a timeout
    with pytest.raises(DisagreementError, match="server 0: sent a message of 5 bytes where 4 are the most"):
        right.receive(4)


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\x80\x80",
        b"\x93\x01\x02\x03",  # a list, not a map
        b"\xdf\xff\xff\xff\xff",  # a map of 2^32 - 1 fields, and none of them
        b"\x81\xa1a\xdd\xff\xff\xff\xff",  # a list of as many
        b"\x81\xa1a" + b"\x91" * 2000 + b"\x01",
        b"\x81\xa1a\xd4\x01\x00",  # an extension
        b"\xde\x00\x41" + b"".join(b"\xa1%c\x01" % k for k in range(65)),  # 65 fields
        b"\x81\xa1a\xc6\xff\xff\xff\xff",
        b"\xc1",
    ],
)
def test_a_malformed_message_is_a_disagreement(pair, data):
    left, right = pair
    left.send(data)
    with pytest.raises(DisagreementError, match="server 0: sent a malformed message"):
        right.receive_message()


def test_another_length_is_a_disagreement(pair):
    left, right = pair
    right.send(b"123")
    with pytest.raises(DisagreementError, match=r"round 7, phase online: server 1: sent a message of 3"):
        left.exchange(b"ab")


def test_silence_is_a_timeout_that_names_peer_phase_and_round(pair):
    with pytest.raises(
        PeerTimeoutError, match=r"round 7, phase online: server 1: silent for 0\.3 s \(engine\.timeout_sec\)"
    ):
        pair[0].receive()


def test_half_a_message_and_then_silence_is_a_timeout_too(pair):
    left, right = pair
    right._socket.sendall(struct.pack("<I", 10) + b"half")
    with pytest.raises(PeerTimeoutError):
        left.receive()


def test_a_closed_connection_is_a_loss(pair):
    left, right = pair
    right._socket.sendall(struct.pack("<I", 10) + b"half")
    right.close()  # as if killed: TLS says no farewell
    with pytest.raises(PeerLostError, match="server 1: closed the connection"):
        left.receive()
    with pytest.raises(PeerLostError, match="server 1: connection lost"):
        left.send(b"x" * 1_000_000)


def test_a_peer_that_takes_nothing_is_a_timeout(pair):
    with pytest.raises(PeerTimeoutError, match=r"took no data for 0\.3 s \(engine\.timeout_sec\)"):
        pair[0].send(b"x" * 10_000_000)


def test_garbage_is_a_disagreement(pair):
    left, right = pair
    for garbage in (b"\xc1", b"\x93\x01", b"\x01", b""):
        right.send(garbage)
        with pytest.raises(DisagreementError, match="malformed"):
            left.receive_message()


def test_strangers_are_turned_away_and_the_expected_peer_gets_in(identities):
    """Silent, gone, plaintext, of another session and of another role; together the silent ones outnumber the time."""
    listener = listen("127.0.0.1", 0)
    address, session, position = listener.getsockname(), b"session", Position()

    def join(role, session):
        return connect(address, identities[role], session, "server 1", position, 20.0)

    with ThreadPoolExecutor() as pool:
        accepted = pool.submit(accept, listener, {"server 0"}, identities["server 1"], session, position, 20.0)
        strangers = [socket.create_connection(address) for _ in range(12)]
        strangers[0].sendall(struct.pack("<I", 3) + b"abc")
        strangers[1].close()
        for role, other in (("server 0", b"another"), ("dealer", session)):
            with pytest.raises(DisagreementError, match="server 1: "):
                join(role, other)
        right = join("server 0", session)
        channels = accepted.result()
    right.send(b"hello")
    channel = channels["server 0"]
    assert (list(channels), channel.peer, channel.receive()) == (["server 0"], "server 0", b"hello")
    assert strangers[2].recv(1) == b""
    for side in (*strangers, right, channel, listener):
        side.close()


def begin(role, address, identities):
    """A connection of this role on which this side has heard the other one, and said nothing yet."""
    secured = identities[role].secure(socket.create_connection(address), server_side=False)
    secured.settimeout(20.0)
    secured.do_handshake()
    channel = Channel(secured, "who accepts", Position(), 20.0)
    assert channel.receive_message()["session"] == b"s"
    return channel


def test_newcomers_who_stop_in_the_middle_hold_nobody_up(identities):
    """Each of them has as long as the whole start: waited for one after the other, the first would take all of it."""
    listener = listen("127.0.0.1", 0)
    address = listener.getsockname()
    strangers = [socket.create_connection(address) for _ in range(20)]
    for stranger in strangers:
        stranger.sendall(b"\x16")  # the first byte of a record of TLS
    with ThreadPoolExecutor() as pool:
        accepted = pool.submit(accept, listener, {"server 0"}, identities["server 1"], b"s", Position(), 20.0)
        strangers.append(begin("server 0", address, identities))
        strangers[-1]._socket.sendall(b"\x05\x00")  # half the length of its introduction
        right = connect(address, identities["server 0"], b"s", "server 1", Position(), 20.0)
        channel = accepted.result()["server 0"]
    right.send(b"hello")
    assert channel.receive() == b"hello"
    for side in (*strangers, right, channel, listener):
        side.close()


def test_of_too_many_newcomers_the_one_that_was_silent_longest_goes(identities):
    listener = listen("127.0.0.1", 0)
    address = listener.getsockname()
    with ThreadPoolExecutor() as pool:
        accepted = pool.submit(accept, listener, {"server 0"}, identities["server 1"], b"s", Position(), 20.0)
        strangers = [socket.create_connection(address) for _ in range(40)]
        for stranger in strangers[:8]:
            assert stranger.recv(1) == b""
        strangers[8].setblocking(False)
        with pytest.raises(BlockingIOError):
            strangers[8].recv(1)
        right = connect(address, identities["server 0"], b"s", "server 1", Position(), 20.0)
        accepted.result()["server 0"].close()
    for side in (*strangers, right, listener):
        side.close()


def test_a_role_is_admitted_once_and_the_second_one_is_told(identities):
    """Both begin before one is admitted, as a connection that is slow and another one of the same role may."""
    listener = listen("127.0.0.1", 0)
    address = listener.getsockname()
    with ThreadPoolExecutor() as pool:
        accepted = pool.submit(accept, listener, {"server 0", "server 1"}, identities["dealer"], b"s", Position(), 20.0)
        slow = begin("server 0", address, identities)
        first = connect(address, identities["server 0"], b"s", "dealer", Position(), 20.0)
        slow.send_message({"session": b"s", "objection": ""})
        told = slow.receive_message()["objection"]
        assert told == "shows the certificate of server 0 where that of server 1 belongs"
        second = connect(address, identities["server 1"], b"s", "dealer", Position(), 20.0)
        channels = accepted.result()
    first.send(b"from the first")
    assert channels["server 0"].receive() == b"from the first"
    for side in (slow, first, second, *channels.values(), listener):
        side.close()


def test_descriptors_above_1023_are_waited_for_too(pair):
    """Of which select() makes a ValueError, or worse."""
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(limits[0], min(2048, limits[1])), limits[1]))
    try:
        left, right = pair
        high = socket.socket(fileno=fcntl.fcntl(right.fileno(), fcntl.F_DUPFD, 1500))
        with high:
            left.send(b"x")
            assert await_events({high: selectors.EVENT_READ}, 20.0) == [high]
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)


def test_who_stopped_in_the_middle_is_counted_when_nobody_else_comes(identities):
    with listen("127.0.0.1", 0) as listener, socket.create_connection(listener.getsockname()) as silent:
        silent.sendall(b"\x16")
        with pytest.raises(PeerTimeoutError, match=r"; newcomers who did not introduce themselves: 1$"):
            accept(listener, {"server 0"}, identities["server 1"], b"s", Position(), 0.5)


def test_a_timeout_names_the_setting_that_is_in_force(identities):
    """Until both sides are ready that of the start-up, then that of a phase."""
    with listen("127.0.0.1", 0) as listener, ThreadPoolExecutor() as pool:
        accepted = pool.submit(accept, listener, {"server 0"}, identities["server 1"], b"s", Position(), 20.0)
        left = connect(listener.getsockname(), identities["server 0"], b"s", "server 1", Position(), 20.0)
        right = accepted.result()["server 0"]
    for side in (left, right):
        assert (side.timeout_sec, side.setting) == (20.0, "engine.startup_timeout_sec")
    left.timeout_sec = 0.2
    with pytest.raises(PeerTimeoutError, match=r"silent for 0\.2 s \(engine\.startup_timeout_sec\)"):
        left.receive()
    left.end_startup(0.3)
    with pytest.raises(PeerTimeoutError, match=r"silent for 0\.3 s \(engine\.timeout_sec\)"):
        left.receive()
    left.close()
    right.close()


def test_nobody_comes(identities):
    listener = listen("127.0.0.1", 0)
    with pytest.raises(
        PeerTimeoutError, match=r"phase handshake: server 0: did not connect in 0\.2 s \(engine\.startup_timeout_sec\)$"
    ):
        accept(listener, {"server 0"}, identities["server 1"], b"s", Position(), 0.2)
    address = listener.getsockname()
    listener.close()
    with pytest.raises(PeerLostError, match="no connection to"):
        connect(address, identities["server 0"], b"s", "server 1", Position(), 1.0)


def test_nobody_answers(identities):
    listener = listen("127.0.0.1", 0)
    with (
        listener,
        pytest.raises(
            PeerTimeoutError, match=r"phase handshake: server 1: silent for 0\.2 s \(engine\.startup_timeout_sec\)"
        ),
    ):
        connect(listener.getsockname(), identities["server 0"], b"s", "server 1", Position(), 0.2)
