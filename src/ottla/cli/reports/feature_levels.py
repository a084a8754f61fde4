"""The feature levels of Kafka's releases, as in Kafka 4.3's tools. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from ottla.cli.java.options import OptionError

METADATA = "metadata.version"
SHORT_MAX = 32767

# Level of metadata.version -> name; includes one level above production, as in Kafka's tools.
METADATA_VERSIONS = dict(
    enumerate(
        (
            *("3.3-IV3", "3.4-IV0", "3.5-IV0", "3.5-IV1", "3.5-IV2", "3.6-IV0", "3.6-IV1", "3.6-IV2"),
            *("3.7-IV0", "3.7-IV1", "3.7-IV2", "3.7-IV3", "3.7-IV4", "3.8-IV0", "3.9-IV0"),
            *("4.0-IV0", "4.0-IV1", "4.0-IV2", "4.0-IV3", "4.1-IV0", "4.1-IV1", "4.2-IV0", "4.2-IV1"),
            *("4.3-IV0", "4.4-IV0"),
        ),
        start=7,
    )
)
LATEST_LEVEL = 30  # the latest production level


class FeatureLevel(NamedTuple):
    """A feature level and the level of metadata.version from which it is the default."""

    level: int
    default_since: int
    requires: dict[str, int] = {}  # noqa: RUF012 (never changed)


# In the order of Kafka's tools.
FEATURES = {
    "kraft.version": (FeatureLevel(0, 7), FeatureLevel(1, 21)),
    "transaction.version": (FeatureLevel(0, 7), FeatureLevel(1, 24), FeatureLevel(2, 24)),
    "group.version": (FeatureLevel(0, 7), FeatureLevel(1, 22)),
    "eligible.leader.replicas.version": (FeatureLevel(0, 7), FeatureLevel(1, 26, {METADATA: 23})),
    "share.version": (FeatureLevel(0, 7), FeatureLevel(1, 28)),
    "streams.version": (FeatureLevel(0, 7), FeatureLevel(1, 29)),
}


def level_text(feature: str, level: int) -> str:
    """A level as printed by Kafka's tools: metadata.version by name."""
    if feature != METADATA:
        return str(level)
    return METADATA_VERSIONS.get(level) or f"UNKNOWN {level}"


def metadata_level(text: str, is_production: bool = False) -> int:
    """The metadata.version level of a release such as 4.0, 4.0.1 or 4.0-IV3."""
    match = re.match(r"(\d+\.\d+)(?:\.\d+)?(-IV\d+)?$", text)
    if match is not None:
        for level, name in reversed(METADATA_VERSIONS.items()):
            is_meant = name == match[1] + match[2] if match[2] else name.startswith(match[1] + "-")
            if is_meant and (match[2] or level <= LATEST_LEVEL):
                return level
    known = [name for level, name in METADATA_VERSIONS.items() if not is_production or level <= LATEST_LEVEL]
    raise OptionError(f"Unknown metadata.version '{text}'. Supported metadata.version are: {', '.join(known)}")


def default_levels(metadata: int) -> dict[str, int]:
    """The levels of all other features in a release."""
    return {
        name: max(item.level for item in levels if item.default_since <= metadata) for name, levels in FEATURES.items()
    }


def mapping_lines(text: str | None, is_production: bool = False) -> Iterator[str]:
    """The lines of `version-mapping`."""
    level = LATEST_LEVEL if text is None else metadata_level(text, is_production)
    yield f"{METADATA}={level} ({text or METADATA_VERSIONS[level]})"
    yield from (f"{name}={number}" for name, number in default_levels(level).items())


def dependency_lines(pairs: Sequence[str]) -> Iterator[str]:
    """The lines of `feature-dependencies`."""
    for name, level in map(parse_level, pairs):
        if name == METADATA:
            if level not in METADATA_VERSIONS:
                raise OptionError(f"Unknown metadata.version {level}")
            yield f"{name}={level} ({METADATA_VERSIONS[level]}) has no dependencies."
        elif name not in FEATURES:
            raise OptionError(f"Unknown feature: {name}")
        else:
            yield from _dependencies(name, level)


def parse_level(text: str) -> tuple[str, int]:
    """Parse `feature=level`."""
    name, is_pair, level = text.partition("=")
    if not is_pair:
        raise OptionError(f"Can't parse feature=level string {text}: equals sign not found.")
    level = level.strip()
    if not re.fullmatch(r"[+-]?\d+", level) or abs(int(level)) > SHORT_MAX:
        raise OptionError(f"Can't parse feature=level string {text}: unable to parse {level} as a short.")
    return name.strip(), int(level)


def _dependencies(name: str, level: int) -> Iterator[str]:
    found = next((item for item in FEATURES[name] if item.level == level), None)
    if found is None:
        raise OptionError(f"No feature:{name} with feature level {level}")
    if not found.requires:
        yield f"{name}={level} has no dependencies."
        return
    yield f"{name}={level} requires:"
    for other, number in found.requires.items():
        yield f"    {other}={number}" + (f" ({METADATA_VERSIONS[number]})" if other == METADATA else "")
