"""Both services of a roster, in threads of this process, with real connections."""

from __future__ import annotations

import io
import json
import socket
import threading
from pathlib import Path

from orchestrator.aggregator.log import Told
from orchestrator.aggregator.service import Service
from orchestrator.agreement.aggregator_file import AggregatorFile, Timeouts
from orchestrator.agreement.policy import Policy

TIMEOUTS = Timeouts(startup_sec=20.0, silence_sec=20.0)


def free_ports(count):
    """Of this host, which nobody has now."""
    taken = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [each.getsockname()[1] for each in taken]
    for each in taken:
        each.close()
    return ports


class Threads:
    """Two services that listen where the roster says.

    Attributes:
        logs: what each has told.
    """

    def __init__(self, roster, keys, folder: Path, status_ports, **policy):
        """Args: keys: of the two aggregators."""
        allowed = Policy(**{"noise_multiplier": 0.0, "largest_epsilon": None, "min_cohort": 1, **policy})
        self.logs = [io.StringIO(), io.StringIO()]
        self.services, self.threads = [], []
        for index, own in enumerate(keys):
            host, port = roster.aggregators[index].address
            file = AggregatorFile(
                identity=folder / own.name,
                roster=folder / "consortium.yaml",
                listen=f"{host}:{port}",
                status=f"{host}:{status_ports[index]}",
                policy=allowed,
                timeouts=TIMEOUTS,
                most_runs=4,
            )
            service = Service(file, own, roster, Told(self.logs[index]), version="0")
            listening = threading.Event()
            thread = threading.Thread(target=service.run, args=(lambda port, event=listening: event.set(),))
            thread.start()
            assert listening.wait(20.0)
            self.services.append(service)
            self.threads.append(thread)

    def events(self, index):
        return [json.loads(line) for line in self.logs[index].getvalue().splitlines()]

    def settle(self):
        """Until all sessions have ended, whose coordinators have hung up."""
        for service in self.services:
            for session in list(service._sessions.values()):
                session.thread.join(20.0)
            assert not service._sessions

    def close(self):
        for service in self.services:
            service.stop()
        for thread in self.threads:
            thread.join(60.0)
            assert not thread.is_alive()
