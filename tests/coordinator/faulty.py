"""Runs a server or the dealer that harms itself at a given point: `faulty.py ROLE PHASE ROUND SIGNAL [MARKER]`.

With a marker, a file that must not exist yet, it does so once and is a good process from then on. Started by the
engine in place of the real process, through its `commands` argument.
"""

import os
import signal
import sys
from pathlib import Path

from orchestrator.server import dealer
from orchestrator.server.embedded import EmbeddedServer
from orchestrator.server.main import main as serve
from orchestrator.transport.channel import Position


def main() -> None:
    role, phase, number, name, *marker = sys.argv[1:]

    def strike(now: str, round: int) -> None:
        if (now, round) == (phase, int(number)) and not (marker and Path(marker[0]).exists()):
            if marker:
                Path(marker[0]).touch()
            os.kill(os.getpid(), getattr(signal, name))

    if role == "dealer":
        original = dealer.deal
        calls = []

        def deal(demand):
            calls.append(demand)
            strike("preprocessing", len(calls))
            return original(demand)

        dealer.deal = deal
        dealer.main()
    else:
        enter = Position.enter

        def enter_phase(self, now, round):
            strike(now, round)
            enter(self, now, round)

        Position.enter = enter_phase
        serve(EmbeddedServer)


if __name__ == "__main__":
    main()
