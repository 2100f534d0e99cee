"""The command line, one file a group of commands: parse, call, print."""

from orchestrator.cli.app import main

__all__ = ["main"]
