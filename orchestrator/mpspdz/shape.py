"""What is compiled and run: a program, its arguments, and the options that compiler and parties must agree on."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass

from mpc_programs.rules import RoundParameters
from orchestrator.errors import ConfigError
from orchestrator.mpc.fixed_point import SCALAR_BITS
from orchestrator.mpspdz.installation import PROTOCOLS
from orchestrator.mpspdz.programs import ROUNDS, RoundProgram

__all__ = ["Job", "Operation", "Shape"]

_TRUNCATION_SECURITY = 40


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
        if self.protocol not in PROTOCOLS:
            raise ConfigError(f"engine.protocol: '{self.protocol}' is none of {', '.join(PROTOCOLS)}")

    @property
    def parties(self) -> int:
        """How many processes run it."""
        return PROTOCOLS[self.protocol].parties

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
        options = ["-v", "-R", str(self.ring_bits), "-o", "no_memory_output"]
        if self.ring_bits == 128:
            options += ["-E", str(_TRUNCATION_SECURITY)]
        return [*options, *PROTOCOLS[self.protocol].options]


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
    """An aggregation round: one of `mpc_programs.programs.PROGRAMS`.

    Attributes:
        parameters: the public side of the arithmetic.
        length: d, the number of model parameters; programs that compute the factors alone ignore it.
    """

    parameters: RoundParameters
    length: int

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.program not in ROUNDS:
            raise ConfigError(f"engine.program: '{self.program}' is none of {', '.join(ROUNDS)}")
        self.round_program.check(self.parameters)

    @property
    def round_program(self) -> RoundProgram:
        return ROUNDS[self.program]

    @property
    def ring_bits(self) -> int:
        return self.round_program.ring_bits

    @property
    def fraction_bits(self) -> int:
        return self.round_program.fraction_bits

    @property
    def arguments(self) -> list[str]:
        """In the order that `mpc_programs.mpspdz_round.arguments` reads."""
        p = self.parameters
        ratio = "none" if p.ratio_max is None else str(p.ratio_max)
        length = self.length if self.round_program.sums else 0
        return [str(p.cohort), str(length), p.rule, str(p.lam), str(p.tau), str(p.fairness_max), ratio]
