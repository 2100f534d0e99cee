"""YAML as people mean it: 1.1, except that ``1e-4`` is a number and that no key stands twice."""

from __future__ import annotations

import re
from typing import Any

import yaml

from orchestrator.errors import ConfigError

__all__ = ["dump", "parse"]


class _Loader(yaml.SafeLoader):
    """Refuses a key that stands twice."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        names = [key.value for key, _ in node.value if isinstance(key, yaml.ScalarNode)]
        for name in names:
            if names.count(name) > 1:
                raise yaml.constructor.ConstructorError(None, None, f"'{name}' stands twice", node.start_mark)
        return super().construct_mapping(node, deep)


class _Dumper(yaml.SafeDumper):
    """Quotes the text that `_Loader` would take for a number."""


for _side in (_Loader, _Dumper):
    _side.add_implicit_resolver(
        "tag:yaml.org,2002:float",
        re.compile(r"[-+]?([0-9][0-9_]*(\.[0-9_]*)?|\.[0-9][0-9_]*)[eE][-+]?[0-9]+$"),
        list("-+.0123456789"),
    )


def parse(text: str, where: str) -> Any:
    """The value. Raises ConfigError, naming where the text stands."""
    try:
        return yaml.load(text, _Loader)
    except (yaml.YAMLError, ValueError) as error:  # ValueError: a date that does not exist
        raise ConfigError(f"{where}: not valid YAML: {' '.join(str(error).split())}") from None


def dump(tree: Any) -> str:
    """Text that `parse` reads back as the same value."""
    return yaml.dump(tree, Dumper=_Dumper, sort_keys=False)
