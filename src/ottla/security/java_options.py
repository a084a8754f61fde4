"""System properties of Java (`-Dname=value`) as Kafka's scripts hand them over: in KAFKA_OPTS. Pure."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from typing import Final

VARIABLES: Final = ("JAVA_TOOL_OPTIONS", "KAFKA_OPTS")  # the later one wins


def java_properties(environment: Mapping[str, str]) -> dict[str, str]:
    """Of a property that is named twice the last value counts, as in Java."""
    found: dict[str, str] = {}
    for variable in VARIABLES:
        text = environment.get(variable, "")
        try:
            words = shlex.split(text)
        except ValueError:  # a quote that is not closed: Java would get the words as the shell splits them
            words = text.split()
        for word in words:
            if word.startswith("-D"):
                name, _, value = word[2:].partition("=")
                found[name] = value
    return found
