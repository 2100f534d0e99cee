"""The methods' settings: all of them are used, and reading them imports no more than it must."""

from __future__ import annotations

import ast
import inspect
import subprocess
import sys
import textwrap
from importlib import import_module
from typing import Literal, get_args, get_origin

import pytest
from pydantic import ValidationError

from orchestrator.config import settings_class
from orchestrator.methods import method_class
from orchestrator.registry import METHODS

ROOM = "orchestrator.methods"


def modules(name):
    """Those that a method's client consists of, without settings."""
    found = [base.__module__ for base in method_class(name).__mro__ if base.__module__.startswith(ROOM)]
    for module in found:  # grows
        nodes = ast.walk(ast.parse(inspect.getsource(import_module(module))))
        imported = [node.module or "" for node in nodes if isinstance(node, ast.ImportFrom)]
        found += [other for other in imported if other.startswith(f"{ROOM}.") and other not in found]
    return [import_module(module) for module in found if not module.endswith(".settings")]


def sections(section):
    return [section, *(deeper for inner in section.inner().values() for deeper in sections(inner))]


def attributes(source, owners):
    """Names read of what is called, or is an attribute called, like one of the owners; checks of settings are none."""
    nodes = [ast.parse(textwrap.dedent(source))]
    while nodes:
        node = nodes.pop()
        if any("validator" in ast.unparse(decorator) for decorator in getattr(node, "decorator_list", ())):
            continue
        if isinstance(node, ast.Attribute) and ast.unparse(node.value).split(".")[-1] in owners:
            yield node.attr
        nodes += ast.iter_child_nodes(node)


@pytest.mark.parametrize("name", METHODS)
def test_every_setting_of_every_method_is_read_by_it(name):
    """The converse, that a client reads no setting that its method does not have, is the type checker's."""
    read = {x for module in modules(name) for x in attributes(inspect.getsource(module), {"settings", "method"})}
    for section in sections(settings_class(name)):
        bases = [base for base in section.__mro__ if base.__module__.startswith(ROOM)]
        by_itself = {x for base in bases for x in attributes(inspect.getsource(base), {"self"})}
        assert section.model_fields.keys() - {"name"} <= read | by_itself | refused(section)


def refused(section):
    """Settings of one value, whose others stand there to be refused by name."""
    kept = set()
    for name, field in section.model_fields.items():
        others = set(get_args(field.annotation)) - {field.default} if get_origin(field.annotation) is Literal else ()
        if others and all(_refuses(section, name, other) for other in others):
            kept.add(name)
    return kept


def _refuses(section, name, value):
    try:
        section(**{name: value})
    except ValidationError:
        return True
    return False


TORCHLESS = """
import sys
from orchestrator.config import load_config, preset_names, settings_class
from orchestrator.registry import METHODS
for name in METHODS:
    settings_class(name)
for name in preset_names():
    load_config([name])
print(sorted({"torch", "torch_geometric", "pandas", "scipy", "sklearn", "networkx"} & sys.modules.keys()))
"""


def test_settings_are_read_without_what_takes_long_to_import():
    run = subprocess.run([sys.executable, "-c", TORCHLESS], capture_output=True, text=True, check=True)
    assert run.stdout.strip() == "[]"
