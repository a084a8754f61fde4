"""Files that are written: templates beside this module with <<names>> in them. Pure, but reads the package's data.

A template knows no conditions and no loops: what comes several times is a template of its own. So each of them can be
read as the file that it becomes.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from importlib.resources import files
from typing import Final

_NAME: Final = re.compile(r"<<([a-z_]+)>>")


def template(name: str) -> str:
    """The text of a template, such as "compose/broker.yaml"."""
    return files(__package__).joinpath("templates", *name.split("/")).read_text(encoding="utf-8")


def fill(text: str, values: Mapping[str, object]) -> str:
    """The text with its names replaced. A line that is a name alone goes if its value is empty, and so does its end."""
    lines: list[str] = []
    for line in text.splitlines():
        alone = _NAME.fullmatch(line.strip())
        if alone is None:
            lines.append(_NAME.sub(lambda match: str(values[match[1]]), line))
            continue
        indent = line[: len(line) - len(line.lstrip())]
        lines += [f"{indent}{each}" if each else "" for each in str(values[alone[1]]).splitlines()]
    return "\n".join([*lines, ""])
