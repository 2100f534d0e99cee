"""`python -m orchestrator.cli`."""

from orchestrator.cli.app import main

main()
