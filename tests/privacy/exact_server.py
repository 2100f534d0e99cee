"""A server that adds no dither, in place of the real process: `exact_server.py`."""

import numpy as np

from orchestrator.server import base
from orchestrator.server.embedded import EmbeddedServer
from orchestrator.server.main import main

if __name__ == "__main__":
    base.dither_ring64 = lambda count, bits: np.zeros(count, dtype=np.uint64)
    main(EmbeddedServer)
