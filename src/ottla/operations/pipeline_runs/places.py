"""Where a pipeline reads and writes, by name: what its run tells about itself, so that others find its surroundings."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple


class Places(NamedTuple):
    """Topics and groups of the pipeline's own cluster, `bootstrap`; empty: there is none."""

    bootstrap: str = ""
    reads: tuple[str, ...] = ()
    patterns: tuple[str, ...] = ()  # of topics that are read
    writes: tuple[str, ...] = ()
    elsewhere: tuple[str, ...] = ()  # topics of other clusters, with their brokers
    groups: tuple[str, ...] = ()  # that show the progress of its queries
    dead_letters: str = ""
    late_rows: str = ""


def read_places(value: object) -> Places | None:
    """From its JSON form, also that of another version; None where nothing was told. What is damaged is left out."""
    if not isinstance(value, Mapping):
        return None
    known: dict[str, Any] = {}
    for name, standard in Places._field_defaults.items():
        given = value.get(name)
        if isinstance(standard, str):
            known[name] = given if isinstance(given, str) else ""
        else:
            known[name] = tuple(each for each in given if isinstance(each, str)) if isinstance(given, list) else ()
    return Places(**known)
