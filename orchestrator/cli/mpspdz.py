"""`safegnn mpc`: the programs that MP-SPDZ runs."""

from __future__ import annotations

from typing import Annotated

import typer

from mpc_programs.programs import PROGRAMS
from orchestrator.cli.options import (
    DataDir,
    File,
    Overrides,
    Parameters,
    Presets,
    Programs,
    choices,
    load,
    model_size,
)
from orchestrator.cli.printing import say, tell
from orchestrator.errors import ConfigError
from orchestrator.mpspdz.installation import PROTOCOLS

__all__ = ["mpc"]


def mpc(
    preset: Presets = None,
    config: File = None,
    set_: Overrides = None,
    data_dir: DataDir = None,
    parameters: Parameters = None,
    protocol: Annotated[list[str] | None, typer.Option("--protocol", help=f"{', '.join(PROTOCOLS)}; repeats.")] = None,
    program: Programs = None,
) -> None:
    """Compile the programs of a round for MP-SPDZ, for every protocol and program, and say where the bytecode is.

    Training and bench compile what they need themselves; this does it ahead, and checks the installation.
    """
    from orchestrator.agreement.from_settings import plan_of
    from orchestrator.mpspdz.compiler import compile_rounds
    from orchestrator.mpspdz.installation import TESTED_VERSIONS, find

    settings = load(preset, config, set_, data_dir)
    protocols = choices("--protocol", protocol or list(PROTOCOLS), tuple(PROTOCOLS))
    programs = choices("--program", program or list(PROGRAMS), tuple(PROGRAMS))
    installation, rule = find(settings.engine.mpspdz_home), plan_of(settings).rule
    for each in protocols:
        installation.check(each)
    tested = "" if installation.version in TESTED_VERSIONS else f" (tested: {', '.join(TESTED_VERSIONS)})"
    say(f"MP-SPDZ {installation.version}{tested} in {installation.home}")
    length = model_size(settings, parameters)
    for name, each, outcome in compile_rounds(installation, rule, length, programs, protocols):
        if not isinstance(outcome, ConfigError):
            say(f"{name}, {each}: {outcome.folder / 'Programs'}")
        elif program:
            raise outcome
        else:
            tell(f"{name}, {each}: left out: {outcome}")
