"""Runs a server or the dealer that harms itself at a given point: `faulty.py ROLE PHASE ROUND SIGNAL`.

Started by the engine in place of the real process, through its `commands` argument.
"""

import os
import signal
import sys
from contextlib import contextmanager

from orchestrator.engines.embedded import dealer, server


def main() -> None:
    role, phase, number, name = sys.argv[1:]

    def strike(now: str, round: int) -> None:
        if (now, round) == (phase, int(number)):
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
        enter = server.Server.phase

        @contextmanager
        def enter_phase(self, now, round):
            strike(now, round)
            with enter(self, now, round):
                yield

        server.Server.phase = enter_phase
        server.main()


if __name__ == "__main__":
    main()
