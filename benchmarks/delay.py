"""A round with a slow line between the two servers: are the exchanges simultaneous?

python benchmarks/delay.py [--delay-ms 20] [--cohort 3] [--repeats 5]

Server 0 reaches server 1 through a relay that holds everything back for the one-way delay, in both directions. If both
servers send before they wait, a round takes one delay an exchange; a protocol that takes turns would take two. What is
made ahead goes the same way in long messages, which should take what the line takes, not a delay for each part.
"""

from __future__ import annotations

import argparse
import asyncio
import multiprocessing
import sys
from multiprocessing.connection import Connection
from typing import Any

from orchestrator.experiments.costs import bench_embedded
from orchestrator.server import main as server
from orchestrator.server.embedded import EmbeddedServer
from orchestrator.transport.channel import Channel
from orchestrator.transport.tls import Identity


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--delay-ms", type=float, default=20.0)
    parser.add_argument("--cohort", type=int, default=3)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--as-server", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    delay_sec = options.delay_ms / 1e3
    if options.as_server:
        serve_behind_relay(delay_sec)
        return
    command = [sys.executable, __file__, "--as-server", "--delay-ms", str(options.delay_ms)]
    record = bench_embedded(options.cohort, 22_000, options.repeats, commands={"server 0": command})
    least = record.rounds * delay_sec
    print(f"{record.rounds} exchanges x {options.delay_ms:g} ms = {1e3 * least:.0f} ms")
    print(f"a round took {1e3 * record.online_seconds:.0f} ms, {record.online_seconds / least:.3f} times that")
    megabytes = record.preprocessing_bytes_per_server / 1e6
    print(f"its preprocessing took {record.preprocessing_seconds:.2f} s for {megabytes:.2f} MB from each server")


def serve_behind_relay(delay_sec: float) -> None:
    """Server 0, as the engine starts it, but with a relay in front of server 1."""
    direct = server.connect

    def connect(address: tuple[str, int], identity: Identity, session: bytes, peer: str, *rest: Any) -> Channel:
        return direct(relay_to(address, delay_sec) if peer == "server 1" else address, identity, session, peer, *rest)

    server.connect = connect
    server.main(EmbeddedServer)


def relay_to(address: tuple[str, int], delay_sec: float) -> tuple[str, int]:
    """Start a relay in a process of its own; the address where it takes one connection."""
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    context.Process(target=_relay, args=(address, delay_sec, theirs), daemon=True).start()
    return ours.recv()


def _relay(address: tuple[str, int], delay_sec: float, report: Connection) -> None:
    async def carry(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        loop = asyncio.get_running_loop()
        while data := await reader.read(1 << 16):
            loop.call_later(delay_sec, writer.write, data)
        loop.call_later(delay_sec, writer.close)

    async def serve() -> None:
        ended = asyncio.Event()

        async def meet(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            there_reader, there_writer = await asyncio.open_connection(*address)
            await asyncio.gather(carry(reader, there_writer), carry(there_reader, writer))
            await asyncio.sleep(2 * delay_sec)
            ended.set()

        listener = await asyncio.start_server(meet, "127.0.0.1", 0)
        report.send(listener.sockets[0].getsockname())
        await ended.wait()

    asyncio.run(serve())


if __name__ == "__main__":
    main()
