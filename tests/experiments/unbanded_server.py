"""Runs a server whose noise has other bands than it was told: `unbanded_server.py none`, or a factor of the first."""

import sys

from orchestrator.privacy.bands import BandedNoise
from orchestrator.server import base
from orchestrator.server.embedded import EmbeddedServer
from orchestrator.server.main import main


class OtherNoise(BandedNoise):
    """Says that it has the bands that were asked for, and has others."""

    def next(self, fresh):
        told, self.bands = self.bands, self.others(self.bands)
        try:
            return super().next(fresh)
        finally:
            self.bands = told

    @staticmethod
    def others(bands):
        return (int(float(sys.argv[1]) * bands[0]), *bands[1:]) if sys.argv[1] != "none" else tuple(0 for _ in bands)


if __name__ == "__main__":
    base.BandedNoise = OtherNoise
    main(EmbeddedServer)
