"""A server that leaves its own noise out, as a process: `python -m` this module.

What is released beside it is what a server sees that subtracts its noise. It stands in one server's place while
`privacy_audit` attacks the other one's noise, and protects nobody.
"""

from __future__ import annotations

import numpy as np

from orchestrator.server.embedded import EmbeddedServer
from orchestrator.server.main import main

__all__ = ["CuriousServer"]


class CuriousServer(EmbeddedServer):
    """Says what the other server expects to hear, and draws noise of size zero."""

    def _draw(self, key: tuple[int, float, float]) -> tuple[np.ndarray, np.ndarray]:
        return super()._draw((key[0], 0.0, 0.0))


if __name__ == "__main__":
    main(CuriousServer)
