"""Runs a server that takes uploads of a roster's sites only, each signed: `verifying_server ROSTER`."""

from __future__ import annotations

import sys
from pathlib import Path

from orchestrator.agreement.identity import verify
from orchestrator.agreement.roster import Roster
from orchestrator.server.embedded import EmbeddedServer
from orchestrator.server.main import main
from orchestrator.wire.envelope import UPLOAD


class VerifyingServer(EmbeddedServer):
    def __init__(self, *arguments):
        roster = Roster.read(Path(sys.argv[1]))

        def signed_by(client, message, signature):
            return verify(roster.site(client).certificate, UPLOAD, message, signature)

        super().__init__(*arguments, signed_by)


if __name__ == "__main__":
    main(VerifyingServer)
