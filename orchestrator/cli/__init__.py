"""The command line, one file a group of commands: parse, call, print."""

from orchestrator.cli.entry import main

__all__ = ["main"]
