"""The MP-SPDZ engine: the same two servers, envelopes and channels as the embedded one; only the computing differs."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import numpy as np

from orchestrator.agreement.round_plan import RoundPlan, Terms
from orchestrator.coordinator.two_servers import TwoServerEngine
from orchestrator.errors import ConfigError
from orchestrator.mpspdz.compiler import compile_program, default_cache
from orchestrator.mpspdz.installation import PROTOCOLS, find
from orchestrator.mpspdz.scratch import private_folder
from orchestrator.mpspdz.shape import Shape

__all__ = ["MpSpdzEngine"]


class MpSpdzEngine(TwoServerEngine):
    """Every round starts one party per server, and the dealer's where the protocol has one."""

    def __init__(
        self,
        plan: RoundPlan,
        *,
        home: Path | None = None,
        cache: Path | None = None,
        **options: Any,
    ) -> None:
        """
        Args:
            plan: of the rounds; its protocol is "semi2k", two parties and oblivious transfer, or "dealer-ring", with a
                dealer.
            home: the installation; None looks where `installation.find` does.
            cache: where bytecode is kept; None: `compiler.default_cache`.
            options: as `TwoServerEngine` takes them.

        Raises:
            ConfigError: there is no usable installation, or the program does not fit the formats.
        """
        parameters, protocol = plan.rule, plan.protocol
        if parameters.expected is not None:
            raise ConfigError(
                "privacy.sensitivity: bounded_weights with federation.sampling poisson has no MP-SPDZ program; "
                "choose distinct, or another engine.name"
            )
        if plan.adaptive:
            raise ConfigError(
                "privacy.clip: quantile changes the clip bound from round to round, and MP-SPDZ's programs are "
                "compiled for one; choose fixed, or another engine.name"
            )
        shape = Shape(plan.program, protocol, parameters, 0)  # says so where the program cannot compute this
        shape.round_program.check_format(plan.vectors)
        self._sums = shape.round_program.sums
        self._installation, self._cache = find(home), cache or default_cache()
        self._protocol = protocol
        self._installation.check(protocol)
        self._scratch: Path | None = None
        here = "orchestrator.server"
        modules = {"server 0": f"{here}.mpspdz", "server 1": f"{here}.mpspdz"}
        if PROTOCOLS[protocol].dealer:
            modules["dealer"] = f"{here}.mpspdz_dealer"
        settings = {
            "name": "mpspdz",
            "protocol": protocol,
            "home": str(self._installation.home),
            "cache": str(self._cache),
        }
        super().__init__(plan, modules, settings, **options)

    def start(self, parameters: np.ndarray) -> None:
        """As every engine; compiles the program first where that has not been done, which takes seconds."""
        compile_program(
            self._installation, Shape(self._program, self._protocol, self._parameters, len(parameters)), self._cache
        )
        super().start(parameters)

    def prepare(self, round: int, size: int, terms: Terms | None = None) -> None:
        """As every engine; a program is compiled for one size of cohort, so others are refused."""
        if size != self._parameters.cohort:
            raise ConfigError(
                f"federation.sampling: MP-SPDZ's programs are compiled for {self._parameters.cohort} clients, but "
                f"round {round} has {size}; choose distinct, or another engine.name"
            )
        super().prepare(round, size, terms)

    def _session_settings(self, length: int) -> dict[str, Any]:
        """Adds the folder for the parties' files. It is the engine's, so that it goes also where a server is killed."""
        values = (self._parameters.cohort + 1) * length if self._sums else 0
        try:
            self._scratch = private_folder(16 * values)
        except OSError as error:
            raise ConfigError(f"MP-SPDZ: no folder for share files: {error.filename}: {error.strerror}") from None
        return {**self._settings, "scratch": str(self._scratch)}

    def close(self) -> None:
        super().close()
        if self._scratch is not None:
            shutil.rmtree(self._scratch, ignore_errors=True)
            self._scratch = None
