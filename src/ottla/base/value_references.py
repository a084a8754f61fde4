"""References in values: `${env:NAME}` is a variable of the environment, `${file:/path:key}` a key of a properties file.

So no secret has to stand in `server.properties`, nor on a command line. The forms are those of Kafka's
EnvVarConfigProvider and FileConfigProvider, which need not be switched on here. `${file:/path}` without a key is the
file's first line.

Rules:
1. What is referred to must exist: a password that silently became empty, or stayed `${env:X}`, helps nobody.
2. A file may have FILE_BYTES_MAX. What is wrong names the place, never a value.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from ottla.base.properties import PropertiesError, read_properties

FILE_BYTES_MAX: Final = 1024 * 1024
_REFERENCE: Final = re.compile(r"\$\{(env|file):([^}]*)\}")


class BrokenReferenceError(ValueError):
    """A reference to nothing."""


def resolve(text: str, environment: Mapping[str, str]) -> str:
    """The text with what it refers to in place. Raises BrokenReferenceError."""
    if "${" not in text:
        return text
    return _REFERENCE.sub(lambda match: _value(match[1], match[2], environment), text)


def _value(kind: str, place: str, environment: Mapping[str, str]) -> str:
    if kind == "env":
        if place not in environment:
            raise BrokenReferenceError(f"${{env:{place}}}: there is no such variable in the environment")
        return environment[place]
    path, colon, key = place.rpartition(":")
    if not colon or "/" in key:
        path, key = place, ""
    return _of_file(path, key)


def _of_file(path: str, key: str) -> str:
    reference = f"${{file:{path}{':' if key else ''}{key}}}"
    try:
        with open(path, "rb") as file:
            data = file.read(FILE_BYTES_MAX + 1)
    except OSError as problem:
        raise BrokenReferenceError(f"{reference}: {(problem.strerror or str(problem)).lower()}") from None
    if len(data) > FILE_BYTES_MAX:
        raise BrokenReferenceError(f"{reference}: the file is larger than {FILE_BYTES_MAX} bytes")
    text = data.decode("utf-8", "replace")
    if not key:
        return text.partition("\n")[0].rstrip("\r")
    try:
        properties = read_properties(text)
    except PropertiesError as problem:
        raise BrokenReferenceError(f"{reference}: line {problem.line}: {problem.cause}") from None
    if key not in properties:
        raise BrokenReferenceError(f"{reference}: the file has no such key")
    return properties[key]
