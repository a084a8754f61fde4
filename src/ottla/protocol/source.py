"""Generated source: lines, the objects they name, and which field each line belongs to.

The last is what makes errors readable at no cost: generated code carries no field names around; when it fails, the
line number in the traceback tells the field.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ottla.protocol.primitives import ProtocolError, line_of, reason_of


class Source:
    def __init__(self, title: str, names: dict[str, Any]) -> None:
        self.title = title
        self.names: dict[str, Any] = {**names, "explain": self.explain}
        self.lines: list[str] = []
        self.fields: list[str] = []
        self.field = ""
        self._count = 0

    def put(self, depth: int, line: str) -> None:
        self.lines.append("    " * depth + line)
        self.fields.append(self.field)

    def fresh(self, prefix: str) -> str:
        self._count += 1
        return f"{prefix}{self._count}"

    def constant(self, value: Any, prefix: str) -> str:
        """A name or literal that stands for `value` in the generated code."""
        if value is None or type(value) in (int, bool, str, bytes):
            return repr(value)
        name = self.fresh(prefix)
        self.names[name] = value
        return name

    def build(self, function: str) -> Callable[..., Any]:
        text = "\n".join(self.lines)
        exec(compile(text, f"<{self.title}>", "exec"), self.names)  # noqa: S102 (our own text, no input in it)
        made: Callable[..., Any] = self.names[function]
        return made

    def explain(self, error: BaseException) -> ProtocolError:
        """The same error, saying which message and field it is about; called by the generated code."""
        line = line_of(error.__traceback__)
        field = self.fields[line - 1] if 0 < line <= len(self.fields) else ""
        return ProtocolError(f"{self.title}{', ' + field if field else ''}: {reason_of(error)}")

    def __repr__(self) -> str:
        return f"<Source of {self.title}, {len(self.lines)} lines>"
