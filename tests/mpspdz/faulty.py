"""A server whose disk is full where share files are written. Started by the engine in place of the real one."""

import errno

from orchestrator.server import mpspdz as server
from orchestrator.server.main import main


def full(path, shares):
    raise OSError(errno.ENOSPC, "No space left on device", str(path))


if __name__ == "__main__":
    server.write_shares = full
    main(server.MpSpdzServer)
