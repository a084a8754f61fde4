"""A whole cluster as one YAML file: topics, settings, schemas, users, ACLs and quotas. Pure.

    topic_defaults: {partitions: 3, replication_factor: 3}
    topics:
    - {name: orders, partitions: 6, settings: {retention.ms: 86400000}}
    brokers:
    - {broker-defaults: true, settings: {log.cleaner.threads: 2}}
    groups:
    - {group: billing, settings: {consumer.session.timeout.ms: 60000}}
    schemas:
    - {subject: orders-value, file: order.avsc, compatibility: FULL}

The sections of `ottla security` are described in `cli/cluster_file/policy.py`. Further rules:
1. Settings are kept as written: `1:2` is not a time of day, `no` is not a Boolean. The brokers validate them.
2. A topic inherits missing fields from `topic_defaults`, and missing settings one by one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Final

from ottla.base.names import topic_name_problem
from ottla.cli.cluster_file.policy import policy_sections, read_policy_sections, section_text
from ottla.cli.cluster_file.policy_document import (
    EntryError,
    Sections,
    add_unique,
    check_keys,
    required_number,
    required_text,
)
from ottla.operations.cluster_policy.cluster_state import (
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
from ottla.operations.errors import WrongInputError
from ottla.operations.schema_registry.schemas import AVRO, KINDS, LEVELS, TYPES, Reference, UnregisteredSchema
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

# Reads the schema in a file; without a format the suffix decides. Raises WrongInputError.
ReadDraft = Callable[[str, str | None], UnregisteredSchema]


def read_cluster_file(text: str, file: str, read_draft: ReadDraft) -> ClusterState:
    """Parse a cluster file. Raises FileError."""
    sections = Sections(text, file, SECTIONS, _is_setting)
    defaults = TopicState(None, None, {})
    if TOPIC_DEFAULTS in sections:
        found: list[TopicState] = []
        entry = sections.values[TOPIC_DEFAULTS]
        sections.read_entry(
            (TOPIC_DEFAULTS,), entry, lambda entry: found.append(_numbers_and_settings(entry, DEFAULT_WORDS))
        )
        defaults = found[0] if found else defaults
    topics: dict[str, TopicState] = {}
    brokers: dict[str, Settings] = {}
    groups: dict[str, Settings] = {}
    schemas: dict[str, SubjectState] = {}
    names: dict[str, None] = {}  # includes invalid entries, so that a duplicate is reported in the same run
    sections.read_entries(TOPICS, lambda entry: add_unique(topics, _topic(entry, defaults, names)))
    sections.read_entries(BROKERS, lambda entry: add_unique(brokers, _broker(entry)))
    sections.read_entries(GROUPS, lambda entry: add_unique(groups, _group(entry)))
    sections.read_entries(SCHEMAS, lambda entry: add_unique(schemas, _schema(entry, read_draft)))
    policy = read_policy_sections(sections)
    sections.raise_problems()
    return ClusterState(
        topics if TOPICS in sections else None,
        brokers if BROKERS in sections else None,
        groups if GROUPS in sections else None,
        schemas if SCHEMAS in sections else None,
        policy,
    )


def _is_setting(path: Path) -> bool:
    """Whether this is a value, or an item of a list, below the key `settings`."""
    name_index = 1 if path[:1] == (TOPIC_DEFAULTS,) else 2
    return len(path) > name_index + 1 and path[0] in SECTIONS and path[name_index] == SETTINGS


def _topic(entry: Mapping[str, Any], defaults: TopicState, names: dict[str, None]) -> Iterator[tuple[str, TopicState]]:
    name = required_text(entry, "name")
    add_unique(names, [(name, None)])
    problem = topic_name_problem(name)
    if problem is not None:
        raise EntryError(problem, "name")
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
    check_keys(entry, words)
    numbers = {word: required_number(entry, word, 1, most) for word, most in NUMBERS.items() if word in entry}
    return TopicState(numbers.get("partitions"), numbers.get("replication_factor"), _settings(entry))


def _broker(entry: Mapping[str, Any]) -> Iterator[tuple[str, Settings]]:
    check_keys(entry, BROKER_WORDS)
    if ("broker" in entry) == (BROKER_DEFAULTS in entry):
        raise EntryError(f"give either broker, with its id, or {BROKER_DEFAULTS}: true")
    if BROKER_DEFAULTS in entry:
        if entry[BROKER_DEFAULTS] is not True:
            raise EntryError(f"the broker defaults have no id: {BROKER_DEFAULTS}: true", BROKER_DEFAULTS)
        yield ALL_BROKERS, _settings(entry)
    else:
        yield str(required_number(entry, "broker", 0, VERSION_MAX)), _settings(entry)


def _group(entry: Mapping[str, Any]) -> Iterator[tuple[str, Settings]]:
    check_keys(entry, GROUP_WORDS)
    yield required_text(entry, "group"), _settings(entry)


def _settings(entry: Mapping[str, Any]) -> dict[str, str | None]:
    found = entry.get(SETTINGS, {})
    if not isinstance(found, dict):
        raise EntryError("settings are of the form {name: value, ...}", SETTINGS)
    return {name: _value(name, value) for name, value in found.items()}


def _value(name: str, value: object) -> str:
    if not name:
        raise EntryError("a setting has no name", SETTINGS)
    items = [item for item in (value if isinstance(value, list) else [value]) if isinstance(item, str)]
    if not isinstance(value, str) and (not isinstance(value, list) or len(items) < len(value)):
        raise EntryError(f"{name} is a value or a list of values", SETTINGS, "an empty one is ''")
    return ",".join(items)


def _schema(entry: Mapping[str, Any], read_draft: ReadDraft) -> Iterator[tuple[str, SubjectState]]:
    check_keys(entry, SCHEMA_WORDS)
    subject = required_text(entry, "subject")
    kind = None
    if "format" in entry:
        word = required_text(entry, "format").lower()
        if word not in FORMATS:
            raise EntryError(f"unknown format {word!r}", "format", did_you_mean(word, list(FORMATS)))
        kind = FORMATS[word]
    level = required_text(entry, "compatibility").upper() if "compatibility" in entry else None
    if level is not None and level not in LEVELS:
        raise EntryError(f"unknown level {level!r}", "compatibility", did_you_mean(level, LEVELS))
    if "file" in entry and "text" in entry:
        raise EntryError("either file or text, not both", "text")
    draft = None
    if "file" in entry:
        try:
            draft = read_draft(required_text(entry, "file"), kind)
        except WrongInputError as problem:
            raise EntryError(str(problem), "file") from None
    elif "text" in entry:
        draft = UnregisteredSchema(kind or AVRO, required_text(entry, "text"))
    elif level is None or "references" in entry or "format" in entry:
        raise EntryError("which schema? name a file, or put in its text")
    references = tuple(_references(entry))
    yield subject, SubjectState(draft and draft._replace(references=references), level)


def _references(entry: Mapping[str, Any]) -> Iterator[Reference]:
    found = entry.get("references", [])
    if not isinstance(found, list) or not all(isinstance(each, dict) for each in found):
        raise EntryError("references are of the form [{name: ..., subject: ..., version: 1}]", "references")
    for each in found:
        try:
            check_keys(each, REFERENCE_WORDS)
            name, subject = required_text(each, "name"), required_text(each, "subject")
            yield Reference(name, subject, required_number(each, "version", 1, VERSION_MAX))
        except EntryError as wrong:
            raise EntryError(str(wrong), "references", wrong.cure) from None


# ---- writing: the same cluster always gives the same text
HEAD: Final = """\
# A cluster. To compare it with this file: ottla apply FILE --dry-run
# Passwords and other secrets are not included: brokers do not return them.
"""


def cluster_text(state: ClusterState, notes: Iterable[str] = ()) -> str:
    parts = [HEAD, *(f"# {note}\n" for note in notes)]
    if state.topics is not None:
        parts.append(section_text(TOPICS, (_topic_entry(*each) for each in sorted(state.topics.items()))))
    if state.brokers is not None:
        brokers = sorted(state.brokers.items(), key=lambda each: (each[0] != ALL_BROKERS, len(each[0]), each[0]))
        parts.append(section_text(BROKERS, (entry for each in brokers for entry in _broker_entries(*each))))
    if state.groups is not None:
        groups = (
            {"group": name, **own} for name, found in sorted(state.groups.items()) if (own := _settings_entry(found))
        )
        parts.append(section_text(GROUPS, groups))
    if state.schemas is not None:
        parts.append(section_text(SCHEMAS, (_schema_entry(*each) for each in sorted(state.schemas.items()))))
    return "".join([*parts, *policy_sections(state.policy)])


def hidden_notes(state: ClusterState) -> Iterator[str]:
    """Comments that name the secrets missing from the file."""
    for kind, resources in (("broker", state.brokers), ("group", state.groups)):
        for name, settings in (resources or {}).items():
            secrets = [key for key, value in settings.items() if value is None]
            if secrets:
                yield f"Not in here, because secret: {', '.join(secrets)} of {kind} {name or 'defaults'}"


def _topic_entry(name: str, topic: TopicState) -> dict[str, object]:
    numbers = {"partitions": topic.partitions, "replication_factor": topic.replication_factor}
    fields = {word: number for word, number in numbers.items() if number is not None}
    return {"name": name, **fields, **_settings_entry(topic.settings)}


def _broker_entries(name: str, settings: Settings) -> Iterator[dict[str, object]]:
    entry = _settings_entry(settings)
    if entry:
        yield {**({BROKER_DEFAULTS: True} if name == ALL_BROKERS else {"broker": int(name)}), **entry}


def _settings_entry(settings: Settings) -> dict[str, object]:
    known = {key: _yaml_value(value) for key, value in sorted(settings.items()) if value is not None}
    return {"settings": known} if known else {}


def _yaml_value(value: str) -> object:
    """Numbers and Booleans without quotes, if they are read back as written."""
    if value in ("true", "false"):
        return value == "true"
    return int(value) if value.isdecimal() and str(int(value)) == value else value


def _schema_entry(subject: str, found: SubjectState) -> dict[str, object]:
    entry: dict[str, object] = {"subject": subject}
    if found.draft is not None:
        entry |= {"format": TYPES[found.draft.kind].lower(), "text": found.draft.text}
        if found.draft.references:
            entry["references"] = [reference._asdict() for reference in found.draft.references]
    if found.compatibility is not None:
        entry["compatibility"] = found.compatibility
    return entry
