"""The MP-SPDZ engine: the same two servers, envelopes and channels as the embedded one; only the computing differs."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

import numpy as np

from mpc_programs.rules import RoundParameters
from orchestrator.engines.embedded.engine import TwoServerEngine
from orchestrator.engines.mpspdz.compiler import Shape, compile_program, default_cache
from orchestrator.engines.mpspdz.installation import find
from orchestrator.errors import ConfigError
from orchestrator.sharing.fixed_point import SCALAR_BITS, VectorFormat

__all__ = ["MpSpdzEngine"]


class MpSpdzEngine(TwoServerEngine):
    """Every round starts one party per server, and the dealer's where the protocol has one."""

    def __init__(
        self,
        parameters: RoundParameters,
        vectors: VectorFormat,
        *,
        protocol: Literal["semi2k", "dealer-ring"] = "semi2k",
        program: str = "assisted",
        home: Path | None = None,
        cache: Path | None = None,
        **options: Any,
    ) -> None:
        """
        Args:
            protocol: "semi2k", two parties and oblivious transfer, or "dealer-ring", with a dealer.
            program: one of `mpc_programs.rules.PROGRAMS`.
            home: the installation; None looks where `installation.find` does.
            cache: where bytecode is kept; None: `compiler.default_cache`.
            options: as `TwoServerEngine` takes them.

        Raises:
            ConfigError: there is no usable installation, or the program does not fit the formats.
        """
        if program == "scalar-first" and vectors.weight_bits != SCALAR_BITS:
            raise ConfigError(f"sharing.weight_bits: scalar-first on MP-SPDZ takes {SCALAR_BITS}")
        self._installation, self._cache = find(home), cache or default_cache()
        self._protocol = protocol
        self._installation.binary(protocol)
        self._installation.check_certificates(protocol)
        here = "orchestrator.engines.mpspdz"
        modules = {"server 0": f"{here}.server", "server 1": f"{here}.server"}
        if protocol == "dealer-ring":
            modules["dealer"] = f"{here}.dealer"
        settings = {
            "name": "mpspdz",
            "protocol": protocol,
            "home": str(self._installation.home),
            "cache": str(self._cache),
        }
        super().__init__(parameters, vectors, modules, settings, program=program, **options)

    def start(self, parameters: np.ndarray) -> None:
        """As every engine; compiles the program first where that has not been done, which takes seconds."""
        compile_program(
            self._installation, Shape(self._program, self._protocol, self._parameters, len(parameters)), self._cache
        )
        super().start(parameters)
