"""What is compiled and run: a program, its arguments, and the options that compiler and parties must agree on."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass

from mpc_programs.rules import PROGRAMS, RoundParameters
from orchestrator.errors import ConfigError
from orchestrator.mpc.fixed_point import FAITHFUL_BITS, SCALAR_BITS
from orchestrator.mpspdz.installation import PARTIES

__all__ = ["Job", "Operation", "Shape"]

_TRUNCATION_SECURITY = 40
_FAITHFUL_LIMIT = 2.0**13
"""`faithful` computes with 31 bits, 16 of them behind the point: sums and differences of two must stay below 2^14."""


@dataclass(frozen=True)
class Job(ABC):
    """A program as it is compiled and run.

    Attributes:
        program: name of a file in `mpc_programs/`, without `.mpc`.
        protocol: "semi2k" or "dealer-ring".
    """

    program: str
    protocol: str

    def __post_init__(self) -> None:
        if self.protocol not in PARTIES:
            raise ConfigError(f"engine.protocol: '{self.protocol}' is none of {', '.join(PARTIES)}")

    @property
    @abstractmethod
    def arguments(self) -> list[str]:
        """In the order that the program reads."""

    @property
    def fraction_bits(self) -> int:
        """Of the numbers in the share file."""
        return SCALAR_BITS

    @property
    def ring_bits(self) -> int:
        return 128

    @property
    def compiler_options(self) -> list[str]:
        return ["-E", self.protocol, "-R", str(self.ring_bits)]

    @property
    def party_options(self) -> list[str]:
        """Also encrypt what `semi2k` would send in plain text; the dealer's protocol always does."""
        options = ["-v", "-R", str(self.ring_bits), "-o", "no_memory_output"]
        if self.ring_bits == 128:
            options += ["-E", str(_TRUNCATION_SECURITY)]
        return [*options, "-e"] if self.protocol == "semi2k" else options


@dataclass(frozen=True)
class Operation(Job):
    """One of the small programs: softmax, exp, clip or weighted-sum.

    Attributes:
        values: its arguments, as each of them says.
    """

    values: tuple[float, ...]

    @property
    def arguments(self) -> list[str]:
        return [str(value) for value in self.values]


@dataclass(frozen=True)
class Shape(Job):
    """An aggregation round: one of `mpc_programs.rules.PROGRAMS`.

    Attributes:
        parameters: the public side of the arithmetic.
        length: d, the number of model parameters; `assisted` does not depend on it and ignores it.
    """

    parameters: RoundParameters
    length: int

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.program not in PROGRAMS:
            raise ConfigError(f"engine.program: '{self.program}' is none of {', '.join(PROGRAMS)}")
        if self.parameters.personal:
            raise ConfigError(f"MP-SPDZ: no program computes the personal rule {self.parameters.rule}")
        if self.program == "faithful":
            self._check_faithful()

    def _check_faithful(self) -> None:
        """What 16 + 15 bits cannot hold, and what the program does not compute."""
        if self.parameters.rule != "f2gnn":
            raise ConfigError("engine.program: 'faithful' computes the paper's rule only; set method.name to f2gnn")
        for setting, value in (
            ("method.score_max", self.parameters.fairness_max),
            ("2^sharing.integer_bits / privacy.clip_norm", self.parameters.ratio_max or 0.0),
            ("method.lam", self.parameters.lam),
        ):
            if value > _FAITHFUL_LIMIT:
                raise ConfigError(
                    f"{setting} = {value:g}: 'faithful' on MP-SPDZ has 16 fractional bits and takes at most "
                    f"{_FAITHFUL_LIMIT:g}; choose another engine.program"
                )

    @property
    def ring_bits(self) -> int:
        return 64 if self.program == "faithful" else 128

    @property
    def fraction_bits(self) -> int:
        """Of the scalars, and of the updates where the program clips and weighs them elementwise."""
        return FAITHFUL_BITS if self.program == "faithful" else SCALAR_BITS

    @property
    def arguments(self) -> list[str]:
        """In the order that `mpc_programs.mpspdz_round.arguments` reads."""
        p = self.parameters
        ratio = "none" if p.ratio_max is None else str(p.ratio_max)
        length = 0 if self.program == "assisted" else self.length
        return [str(p.cohort), str(length), p.rule, str(p.lam), str(p.tau), str(p.fairness_max), ratio]
