"""TensorBoard logs of a run, beside its metrics and costs."""

from __future__ import annotations

from collections.abc import Callable

from orchestrator.coordinator.round_result import RoundResult
from orchestrator.coordinator.run_folder import RunFolder
from orchestrator.errors import ConfigError
from orchestrator.evaluation.figures import metric_names

__all__ = ["tensorboard_observer"]


def tensorboard_observer(folder: RunFolder) -> Callable[[RoundResult], None]:
    """What to call after every round: it writes the round's metrics and costs to `tensorboard/` in the run folder.

    Raises:
        ConfigError: the library is not installed.
    """
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError:
        raise ConfigError("run.tensorboard: install the package's extra, pip install 'safegnn[tensorboard]'") from None
    writer = SummaryWriter(str(folder.path / "tensorboard"))

    def observe(result: RoundResult) -> None:
        for mask, evaluation in result.evaluations.items():
            values = evaluation.as_dict()
            for name in metric_names(values):
                if values[name] is not None:
                    writer.add_scalar(f"{mask}/{name}", values[name], result.round)
        for name, value in result.costs().items():
            writer.add_scalar(f"cost/{name}", value, result.round)
        writer.flush()

    return observe
