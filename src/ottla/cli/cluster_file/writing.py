"""A cluster as the file that `ottla apply` reads. The same cluster gives the same text. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

from ottla.cli.cluster_file.model import (
    ALL_BROKERS,
    BROKERS,
    GROUPS,
    SCHEMAS,
    TOPICS,
    ClusterState,
    Settings,
    SubjectState,
    TopicState,
)
from ottla.cli.cluster_file.reading import BROKER_DEFAULTS
from ottla.cli.security.policy import policy_sections, section_text
from ottla.operations.schema_registry.schemas import TYPES

HEAD: Final = """\
# A cluster. What differs from this: ottla apply FILE --dry-run
# Passwords and other secrets are not in here: no broker gives them away.
"""


def cluster_text(state: ClusterState, notes: Iterable[str] = ()) -> str:
    parts = [HEAD, *(f"# {note}\n" for note in notes)]
    if state.topics is not None:
        parts.append(section_text(TOPICS, (_topic(*each) for each in sorted(state.topics.items()))))
    if state.brokers is not None:
        brokers = sorted(state.brokers.items(), key=lambda each: (each[0] != ALL_BROKERS, len(each[0]), each[0]))
        parts.append(section_text(BROKERS, (entry for each in brokers for entry in _broker(*each))))
    if state.groups is not None:
        groups = ({"group": name, **own} for name, found in sorted(state.groups.items()) if (own := _told(found)))
        parts.append(section_text(GROUPS, groups))
    if state.schemas is not None:
        parts.append(section_text(SCHEMAS, (_schema(*each) for each in sorted(state.schemas.items()))))
    return "".join([*parts, *policy_sections(state.policy)])


def hidden_notes(state: ClusterState) -> Iterator[str]:
    """What a file cannot have, so that nobody believes that it were all."""
    for kind, resources in (("broker", state.brokers), ("group", state.groups)):
        for name, settings in (resources or {}).items():
            secrets = [key for key, value in settings.items() if value is None]
            if secrets:
                yield f"Not in here, because secret: {', '.join(secrets)} of {kind} {name or 'defaults'}"


def _topic(name: str, topic: TopicState) -> dict[str, object]:
    numbers = {"partitions": topic.partitions, "replication_factor": topic.replication_factor}
    told = {word: number for word, number in numbers.items() if number is not None}
    return {"name": name, **told, **_told(topic.settings)}


def _broker(name: str, settings: Settings) -> Iterator[dict[str, object]]:
    told = _told(settings)
    if told:
        yield {**({BROKER_DEFAULTS: True} if name == ALL_BROKERS else {"broker": int(name)}), **told}


def _told(settings: Settings) -> dict[str, object]:
    known = {key: _plain(value) for key, value in sorted(settings.items()) if value is not None}
    return {"settings": known} if known else {}


def _plain(value: str) -> object:
    """Numbers and truth values need no quotes where they are read again as they are written."""
    if value in ("true", "false"):
        return value == "true"
    return int(value) if value.isdecimal() and str(int(value)) == value else value


def _schema(subject: str, found: SubjectState) -> dict[str, object]:
    entry: dict[str, object] = {"subject": subject}
    if found.draft is not None:
        entry |= {"format": TYPES[found.draft.kind].lower(), "text": found.draft.text}
        if found.draft.references:
            entry["references"] = [reference._asdict() for reference in found.draft.references]
    if found.compatibility is not None:
        entry["compatibility"] = found.compatibility
    return entry
