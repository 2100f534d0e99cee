import socket
import struct
import threading

import pytest

from orchestrator.engines.embedded.channel import Channel, Position, accept, connect, listen
from orchestrator.errors import DisagreementError, PeerLostError, PeerTimeoutError, ProtocolError


@pytest.fixture
def pair():
    left, right = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
    position = Position("online", 7)
    channels = [_channel(side, name, position) for side, name in ((left, "server 1"), (right, "server 0"))]
    yield channels
    for channel in channels:
        channel.close()


def _channel(side, peer, position, timeout_sec=0.3):
    # A local pair is no TCP socket; the option that a channel sets on it does not exist there.
    class Plain(socket.socket):
        def setsockopt(self, *_):
            pass

    return Channel(Plain(fileno=side.detach()), peer, position, timeout_sec)


def test_messages_round_trip_and_are_counted(pair):
    left, right = pair
    left.send(b"")
    left.send_message({"a": 1, "b": b"\x00"})
    assert right.receive() == b""
    assert right.receive_message() == {"a": 1, "b": b"\x00"}
    assert left.sent_bytes == right.received_bytes > 8


@pytest.mark.parametrize("size", [0, 1, 65_535, 65_536, 65_537, 3_000_000])
def test_exchange_is_simultaneous_and_cannot_deadlock(size):
    """Both sides send before either receives; with 3 MB no socket buffer would hold that."""
    listener = listen("127.0.0.1", 0)
    client = socket.create_connection(listener.getsockname())
    accepted, _ = listener.accept()
    listener.close()
    left, right = (Channel(side, "peer", Position(), 20.0) for side in (client, accepted))
    got = []
    other = threading.Thread(target=lambda: got.append(right.exchange(b"r" * size)))
    other.start()
    assert left.exchange(b"l" * size) == b"r" * size
    other.join()
    assert got == [b"l" * size]
    assert left.sent_bytes == right.received_bytes == size + 4
    assert left.exchanges == right.exchanges == 1
    left.close()
    right.close()


def test_another_length_is_a_disagreement(pair):
    left, right = pair
    right.send(b"123")
    with pytest.raises(DisagreementError, match=r"round 7, phase online: server 1: sent a message of 3"):
        left.exchange(b"ab")


def test_silence_is_a_timeout_that_names_peer_phase_and_round(pair):
    with pytest.raises(PeerTimeoutError, match=r"round 7, phase online: server 1: silent for 0.3 s"):
        pair[0].receive()


def test_half_a_message_and_then_silence_is_a_timeout_too(pair):
    left, right = pair
    right._socket.sendall(struct.pack("<I", 10) + b"half")
    with pytest.raises(PeerTimeoutError):
        left.receive()


def test_a_closed_connection_is_a_loss(pair):
    left, right = pair
    right._socket.sendall(struct.pack("<I", 10) + b"half")
    right.close()
    with pytest.raises(PeerLostError, match="server 1: closed the connection"):
        left.receive()
    with pytest.raises(PeerLostError, match="server 1: connection lost"):
        left.send(b"x" * 1_000_000)


def test_a_peer_that_takes_nothing_is_a_timeout(pair):
    with pytest.raises(PeerTimeoutError, match="took no data"):
        pair[0].send(b"x" * 10_000_000)


def test_garbage_is_a_disagreement(pair):
    left, right = pair
    for garbage in (b"\xc1", b"\x93\x01", b"\x01", b""):
        right.send(garbage)
        with pytest.raises(DisagreementError, match="malformed"):
            left.receive_message()


def test_strangers_are_turned_away_and_the_expected_peer_gets_in():
    listener = listen("127.0.0.1", 0)
    address, token, position = listener.getsockname(), b"t" * 32, Position()
    strangers = [socket.create_connection(address) for _ in range(2)]
    strangers[0].sendall(struct.pack("<I", 3) + b"abc")
    strangers[1].close()
    wrong_token = connect(address, "server 0", b"x" * 32, "server 1", position, 5.0)
    wrong_role = connect(address, "dealer", token, "server 1", position, 5.0)
    right = connect(address, "server 0", token, "server 1", position, 5.0)
    channel = accept(listener, {"server 0"}, token, position, 5.0)
    right.send(b"hello")
    assert (channel.peer, channel.receive()) == ("server 0", b"hello")
    for turned_away in (wrong_token, wrong_role):
        with pytest.raises(ProtocolError):
            turned_away.receive()
    strangers[0].close()
    for side in (wrong_token, wrong_role, right, channel):
        side.close()
    listener.close()


def test_nobody_comes():
    listener = listen("127.0.0.1", 0)
    with pytest.raises(PeerTimeoutError, match=r"server 0: did not connect in 0\.2 s"):
        accept(listener, {"server 0"}, b"t", Position(), 0.2)
    address = listener.getsockname()
    listener.close()
    with pytest.raises(PeerLostError, match="no connection to"):
        connect(address, "server 0", b"t", "server 1", Position(), 1.0)
