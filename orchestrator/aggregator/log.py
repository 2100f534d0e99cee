"""What a service tells whoever runs it: a line of JSON an event on standard error, and counts for Prometheus.

Neither holds a secret: events name runs by the first bytes of their numbers, peers by role, and say phases, rounds and
reasons, which are what a coordinator hears too. Of clients they say how many were left out.
"""

from __future__ import annotations

import json
import sys
import threading
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, TextIO

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

__all__ = ["Status", "Told"]


class Told:
    """The log. Events may come from any thread."""

    def __init__(self, stream: TextIO | None = None) -> None:
        """Args: stream: where to; None: standard error."""
        self._stream, self._lock = stream or sys.stderr, threading.Lock()

    def __call__(self, event: str, **facts: Any) -> None:
        """Write one event. A log that cannot be written stops nothing."""
        line = json.dumps({"time": datetime.now(UTC).isoformat(timespec="milliseconds"), "event": event, **facts})
        try:
            with self._lock:
                print(line, file=self._stream, flush=True)
        except (OSError, ValueError):
            pass


class Status:
    """Health and metrics of a service, over HTTP on an address of its own host.

    `/healthz` answers 200 as long as the service takes runs, 503 when it is ending; `/metrics` is Prometheus's text.
    """

    def __init__(self, version: str) -> None:
        registry = self._registry = CollectorRegistry()
        self.ending = False
        self._version = version
        self.runs = Gauge("safegnn_runs", "Sessions that are open", registry=registry)
        self.ended = Counter("safegnn_runs_ended", "Sessions that ended, by how", ["how"], registry=registry)
        self.refused = Counter("safegnn_runs_refused", "Runs whose terms were refused", registry=registry)
        self.rounds = Counter("safegnn_rounds", "Rounds that were released", registry=registry)
        self.left_out = Counter("safegnn_clients_left_out", "Clients left out of a round", registry=registry)
        self.seconds = Histogram("safegnn_round_seconds", "Online time of a round", registry=registry)
        self.turned_away = Counter("safegnn_connections_refused", "Connections turned away", registry=registry)
        self._server: ThreadingHTTPServer | None = None

    def serve(self, address: tuple[str, int]) -> int:
        """Answer from now on, in a thread of its own; returns the port. Raises OSError where it is taken."""
        status = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                if self.path == "/metrics":
                    self._answer(200, generate_latest(status._registry), "text/plain; version=0.0.4")
                elif self.path == "/healthz":
                    state = {"status": "ending" if status.ending else "ok", "version": status._version}
                    self._answer(503 if status.ending else 200, json.dumps(state).encode(), "application/json")
                else:
                    self._answer(404, b"", "text/plain")

            def _answer(self, code: int, content: bytes, kind: str) -> None:
                self.send_response(code)
                self.send_header("Content-Type", kind)
                self.send_header("Content-Length", str(len(content)))
                self.end_headers()
                self.wfile.write(content)

            def log_message(self, format: str, *arguments: Any) -> None:
                """Nothing: who asks for metrics asks often."""

        self._server = ThreadingHTTPServer(address, Handler)
        self._server.daemon_threads = True
        threading.Thread(target=self._server.serve_forever, name="status", daemon=True).start()
        return self._server.server_address[1]

    def close(self) -> None:
        """Answer no more; safe to call twice."""
        if self._server is not None:
            self._server.shutdown()
            self._server.server_close()
            self._server = None
