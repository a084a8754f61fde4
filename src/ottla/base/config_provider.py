"""`${env:NAME}`, `${file:PATH:KEY}` and `${directory:PATH:FILE}` in setting values: references to external secrets.

They resolve as with Kafka's EnvVarConfigProvider, FileConfigProvider and DirectoryConfigProvider, and need no
`config.providers`. `${file:PATH}` alone is the whole content of a small file, without its last line ending. References
are resolved in settings files and command lines, and never in values from the wire.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from ottla.base.properties import PropertiesError, read_properties

FILE_BYTES_MAX: Final = 1 << 20
_REFERENCE: Final = re.compile(r"\$\{(env|file|directory):([^}:]*)(?::([^}:]*))?\}")


class ProviderError(Exception):
    """A reference that cannot be resolved: the message names the reference, never a value."""


def resolve_references(text: str, environment: Mapping[str, str]) -> str:
    """The value with all references resolved. Raises ProviderError."""
    if "${" not in text:
        return text
    return _REFERENCE.sub(lambda match: _value(match, environment), text)


def _value(match: re.Match[str], environment: Mapping[str, str]) -> str:
    provider, first, second = match.groups()
    if provider == "env":
        name = second if second is not None else first  # Kafka allows an empty path before the name
        if name not in environment:
            raise ProviderError(f"{match[0]}: there is no variable {name} in the environment")
        return environment[name]
    if provider == "directory":
        return _read(Path(first) / (second or ""), match[0]).rstrip("\r\n")
    text = _read(Path(first), match[0])
    if second is None:
        return text.rstrip("\r\n")
    try:
        found = read_properties(text).get(second)
    except PropertiesError as problem:
        raise ProviderError(f"{match[0]}: line {problem.line}: {problem.cause}") from None
    if found is None:
        raise ProviderError(f"{match[0]}: there is no {second} in the file")
    return found


def _read(path: Path, reference: str) -> str:
    try:
        with path.open("rb") as file:
            data = file.read(FILE_BYTES_MAX + 1)
    except (OSError, ValueError) as problem:
        cause = getattr(problem, "strerror", None) or str(problem)
        raise ProviderError(f"{reference}: cannot be read: {cause.lower()}") from None
    if len(data) > FILE_BYTES_MAX:
        raise ProviderError(f"{reference}: the file is larger than {FILE_BYTES_MAX} bytes")
    return data.decode("utf-8", "replace")
