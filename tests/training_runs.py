"""Runs of the round loop, and runs that crash, for the tests of training."""

from __future__ import annotations

from orchestrator.coordinator.round_result import RoundResult
from orchestrator.coordinator.run_folder import RunFolder
from orchestrator.coordinator.training import train


class Crash(Exception):
    """Stands for whatever ends a run from outside."""


def crash_after(round: int, result: RoundResult) -> None:
    if result.round == round:
        raise Crash


class CrashingFolder(RunFolder):
    """Crashes in round 4, when the records are written and the checkpoint is not."""

    def save(self, checkpoint):
        if checkpoint.round == 4:
            raise Crash
        super().save(checkpoint)


def run(config, **options) -> tuple[RunFolder, list[RoundResult]]:
    folder, results = RunFolder.create(config), []
    train(config, folder, observe=results.append, **options)
    return folder, results
