"""A whole cluster as one file of YAML: topics, settings, schemas, users, rights and quotas. Pure.

    topic_defaults: {partitions: 3, replication_factor: 3}
    topics:
    - {name: orders, partitions: 6, settings: {retention.ms: 86400000}}
    brokers:
    - {broker-defaults: true, settings: {log.cleaner.threads: 2}}
    groups:
    - {group: billing, settings: {consumer.session.timeout.ms: 60000}}
    schemas:
    - {subject: orders-value, file: order.avsc, compatibility: FULL}

Rules, besides those of the sections that `ottla security` has, too (`cli/security/entries.py` and `policy.py`):
1. Settings are text as it is written: `1:2` is no time of day, `no` is no truth value. The brokers judge them.
2. A topic takes from `topic_defaults` what it does not say itself, its settings one by one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

from ottla.base.names import topic_name_problem
from ottla.cli.cluster_file.model import (
    ALL_BROKERS,
    BROKERS,
    GROUPS,
    SCHEMAS,
    SECTIONS,
    TOPIC_DEFAULTS,
    TOPICS,
    ClusterState,
    Settings,
    SubjectState,
    TopicState,
)
from ottla.cli.security.entries import Sections, WrongError, add_once, check_words, number_of, text_of
from ottla.cli.security.policy import take_policy
from ottla.operations.errors import WrongInputError
from ottla.operations.schema_registry.schemas import AVRO, KINDS, LEVELS, Draft, Reference
from ottla.pipelines.model.problems import Path, did_you_mean

SETTINGS: Final = "settings"
NUMBERS: Final = {"partitions": 2**31 - 1, "replication_factor": 2**15 - 1}
DEFAULT_WORDS: Final = (*NUMBERS, SETTINGS)
TOPIC_WORDS: Final = ("name", *DEFAULT_WORDS)
BROKER_DEFAULTS: Final = "broker-defaults"
BROKER_WORDS: Final = ("broker", BROKER_DEFAULTS, SETTINGS)
GROUP_WORDS: Final = ("group", SETTINGS)
SCHEMA_WORDS: Final = ("subject", "format", "file", "text", "compatibility", "references")
REFERENCE_WORDS: Final = ("name", "subject", "version")
FORMATS: Final = {name.lower(): kind for name, kind in KINDS.items()}
VERSION_MAX: Final = 2**31 - 1

# The schema in a file; the format is None if its ending shall tell it. Raises WrongInputError.
ReadDraft = Callable[[str, str | None], Draft]


def read_cluster_file(text: str, file: str, read_draft: ReadDraft) -> ClusterState:
    """Raises FileError."""
    sections = Sections(text, file, SECTIONS, _is_setting)
    defaults = TopicState(None, None, {})
    if TOPIC_DEFAULTS in sections:
        found: list[TopicState] = []
        entry = sections.values[TOPIC_DEFAULTS]
        sections.one((TOPIC_DEFAULTS,), entry, lambda entry: found.append(_numbers_and_settings(entry, DEFAULT_WORDS)))
        defaults = found[0] if found else defaults
    topics: dict[str, TopicState] = {}
    brokers: dict[str, Settings] = {}
    groups: dict[str, Settings] = {}
    schemas: dict[str, SubjectState] = {}
    names: dict[str, None] = {}  # also of entries with mistakes, so that the second one is told in the same go
    sections.each(TOPICS, lambda entry: add_once(topics, _topic(entry, defaults, names)))
    sections.each(BROKERS, lambda entry: add_once(brokers, _broker(entry)))
    sections.each(GROUPS, lambda entry: add_once(groups, _group(entry)))
    sections.each(SCHEMAS, lambda entry: add_once(schemas, _schema(entry, read_draft)))
    policy = take_policy(sections)
    sections.finish()
    return ClusterState(
        topics if TOPICS in sections else None,
        brokers if BROKERS in sections else None,
        groups if GROUPS in sections else None,
        schemas if SCHEMAS in sections else None,
        policy,
    )


def _is_setting(path: Path) -> bool:
    """Whether this is a value, or one of several, below the word `settings`."""
    place = 1 if path[:1] == (TOPIC_DEFAULTS,) else 2
    return len(path) > place + 1 and path[0] in SECTIONS and path[place] == SETTINGS


def _topic(entry: Mapping[str, Any], defaults: TopicState, names: dict[str, None]) -> Iterator[tuple[str, TopicState]]:
    name = text_of(entry, "name")
    add_once(names, [(name, None)])
    problem = topic_name_problem(name)
    if problem is not None:
        raise WrongError(problem, "name")
    own = _numbers_and_settings(entry, TOPIC_WORDS)
    yield (
        name,
        TopicState(
            own.partitions or defaults.partitions,
            own.replication_factor or defaults.replication_factor,
            {**defaults.settings, **own.settings},
        ),
    )


def _numbers_and_settings(entry: Mapping[str, Any], words: tuple[str, ...]) -> TopicState:
    check_words(entry, words)
    numbers = {word: number_of(entry, word, 1, most) for word, most in NUMBERS.items() if word in entry}
    return TopicState(numbers.get("partitions"), numbers.get("replication_factor"), _settings(entry))


def _broker(entry: Mapping[str, Any]) -> Iterator[tuple[str, Settings]]:
    check_words(entry, BROKER_WORDS)
    if ("broker" in entry) == (BROKER_DEFAULTS in entry):
        raise WrongError(f"say either broker, with its id, or {BROKER_DEFAULTS}: true")
    if BROKER_DEFAULTS in entry:
        if entry[BROKER_DEFAULTS] is not True:
            raise WrongError(f"all brokers have no id: {BROKER_DEFAULTS}: true", BROKER_DEFAULTS)
        yield ALL_BROKERS, _settings(entry)
    else:
        yield str(number_of(entry, "broker", 0, VERSION_MAX)), _settings(entry)


def _group(entry: Mapping[str, Any]) -> Iterator[tuple[str, Settings]]:
    check_words(entry, GROUP_WORDS)
    yield text_of(entry, "group"), _settings(entry)


def _settings(entry: Mapping[str, Any]) -> dict[str, str | None]:
    found = entry.get(SETTINGS, {})
    if not isinstance(found, dict):
        raise WrongError("settings are of the form {name: value, ...}", SETTINGS)
    return {name: _value(name, value) for name, value in found.items()}


def _value(name: str, value: object) -> str:
    if not name:
        raise WrongError("a setting has no name", SETTINGS)
    items = [item for item in (value if isinstance(value, list) else [value]) if isinstance(item, str)]
    if not isinstance(value, str) and (not isinstance(value, list) or len(items) < len(value)):
        raise WrongError(f"{name} is a value or a list of values", SETTINGS, "an empty one is ''")
    return ",".join(items)


def _schema(entry: Mapping[str, Any], read_draft: ReadDraft) -> Iterator[tuple[str, SubjectState]]:
    check_words(entry, SCHEMA_WORDS)
    subject = text_of(entry, "subject")
    kind = None
    if "format" in entry:
        word = text_of(entry, "format").lower()
        if word not in FORMATS:
            raise WrongError(f"there is no format {word!r}", "format", did_you_mean(word, list(FORMATS)))
        kind = FORMATS[word]
    level = text_of(entry, "compatibility").upper() if "compatibility" in entry else None
    if level is not None and level not in LEVELS:
        raise WrongError(f"there is no level {level!r}", "compatibility", did_you_mean(level, LEVELS))
    if "file" in entry and "text" in entry:
        raise WrongError("either file or text, not both", "text")
    draft = None
    if "file" in entry:
        try:
            draft = read_draft(text_of(entry, "file"), kind)
        except WrongInputError as problem:
            raise WrongError(str(problem), "file") from None
    elif "text" in entry:
        draft = Draft(kind or AVRO, text_of(entry, "text"))
    elif level is None or "references" in entry or "format" in entry:
        raise WrongError("which schema? name a file, or put in its text")
    references = tuple(_references(entry))
    yield subject, SubjectState(draft and draft._replace(references=references), level)


def _references(entry: Mapping[str, Any]) -> Iterator[Reference]:
    found = entry.get("references", [])
    if not isinstance(found, list) or not all(isinstance(each, dict) for each in found):
        raise WrongError("references are of the form [{name: ..., subject: ..., version: 1}]", "references")
    for each in found:
        try:
            check_words(each, REFERENCE_WORDS)
            name, subject = text_of(each, "name"), text_of(each, "subject")
            yield Reference(name, subject, number_of(each, "version", 1, VERSION_MAX))
        except WrongError as wrong:
            raise WrongError(str(wrong), "references", wrong.cure) from None
