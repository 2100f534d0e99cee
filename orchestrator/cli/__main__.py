"""`python -m orchestrator.cli`."""

from orchestrator.cli.entry import main

main()
