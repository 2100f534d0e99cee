"""Runs a server whose noise is a part of what it should be: `quiet_server.py FACTOR`."""

import sys

from orchestrator.server.embedded import EmbeddedServer
from orchestrator.server.main import main


class QuietServer(EmbeddedServer):
    def _draw(self, key):
        return super()._draw((key[0], float(sys.argv[1]) * key[1], key[2]))


if __name__ == "__main__":
    main(QuietServer)
