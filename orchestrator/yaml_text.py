"""YAML as people mean it: 1.1, without what it reads otherwise than it looks.

``1e-4`` is a number and ``2024-05-01`` text. Refused are ``010``, which is 8 in YAML 1.1, and ``1:30``, which is 90; a
key that stands twice; tags; and aliases of lists and mappings, of which a line can make more than a machine holds.
"""

from __future__ import annotations

import re
from typing import Any

import yaml

from orchestrator.errors import ConfigError

__all__ = ["dump", "parse"]

_LEADING_ZERO = re.compile(r"[-+]?0_*[0-9][0-9_]*")
_BASE_60 = re.compile(r"[-+]?[0-9][0-9_]*(:[0-5]?[0-9])+(\.[0-9_]*)?")
_DATE = "tag:yaml.org,2002:timestamp"


class _Loader(yaml.SafeLoader):
    """Refuses what the module says."""

    yaml_implicit_resolvers = {  # noqa: RUF012 - as in the base
        first: [(tag, pattern) for tag, pattern in several if tag != _DATE]
        for first, several in yaml.SafeLoader.yaml_implicit_resolvers.items()
    }

    def compose_node(self, parent: Any, index: Any) -> Any:
        event = self.peek_event()
        if fault := self._fault(event):
            raise yaml.composer.ComposerError(None, None, fault, event.start_mark)
        return super().compose_node(parent, index)

    def _fault(self, event: yaml.Event) -> str:
        if isinstance(event, yaml.AliasEvent):
            node = self.anchors.get(event.anchor)
            return "" if node is None or isinstance(node, yaml.ScalarNode) else "only a value has aliases; write it out"
        if getattr(event, "tag", None) is not None:
            return f"the tag {event.tag} is not read; put text in quotes"
        if isinstance(event, yaml.ScalarEvent) and event.style is None:
            if _LEADING_ZERO.fullmatch(event.value):
                return f"{event.value}: a number has no leading zero (in YAML it would be octal); put text in quotes"
            if _BASE_60.fullmatch(event.value):
                return f"{event.value}: a number has no colon (in YAML it would be of base 60); put text in quotes"
        return ""

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


for _ambiguous in (_LEADING_ZERO, _BASE_60):
    _Dumper.add_implicit_resolver("tag:yaml.org,2002:int", re.compile(f"{_ambiguous.pattern}$"), list("-+0123456789"))


def parse(text: str, where: str) -> Any:
    """The value. Raises ConfigError, naming where the text stands, and the line."""
    try:
        return yaml.load(text, _Loader)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        at = f"line {mark.line + 1}: " if mark else ""
        fault = at + ", ".join(filter(None, (error.context, error.problem)))
    except RecursionError:
        fault = "nested too deeply"
    except (yaml.YAMLError, ValueError) as error:  # ValueError: a number of too many digits
        fault = str(error)
    raise ConfigError(f"{where}: not valid YAML: {' '.join(fault.split())}")


def dump(tree: Any) -> str:
    """Text that `parse` reads back as the same value."""
    return yaml.dump(tree, Dumper=_Dumper, sort_keys=False)
