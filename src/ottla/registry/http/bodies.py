"""Request and response bodies: JSON to and from the registry's types. Invalid input raises RegistryError. Pure.

As in Confluent's registry, unknown fields are ignored, and numbers or booleans are accepted as text. Empty fields are
left out of responses. Clients that send `Confluent-Accept-Unknown-Properties: true` also get the fields of newer
versions (`accepts_unknown_properties`).
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, Final

import msgspec

from ottla.registry.errors import RegistryError, invalid_level, invalid_mode, invalid_rule_set
from ottla.registry.formats.compatibility import LEVELS
from ottla.registry.records import VERSION_MAX
from ottla.registry.registry import Registered
from ottla.registry.subjects.new_schemas import NewSchema
from ottla.registry.subjects.schema import AVRO, Reference, Schema
from ottla.registry.subjects.settings import DEFAULTS_AND_OVERRIDES, LEVEL, MODES, Config

RULE_NAME: Final = re.compile(r"[^\W\d]\w*(?:[-\w]*)", re.UNICODE)
RULE_NAME_MAX: Final = 64
RULE_KINDS: Final = ("TRANSFORM", "CONDITION")
MIGRATION_MODES: Final = ("UPGRADE", "DOWNGRADE", "UPDOWN")
DOMAIN_MODES: Final = ("WRITE", "READ", "WRITEREAD")
RULE_GROUPS: Final = {"migrationRules": MIGRATION_MODES, "domainRules": DOMAIN_MODES, "encodingRules": DOMAIN_MODES}
REFERENCES_MAX: Final = 1_000


def read_object(body: bytes) -> dict[str, Any]:
    """The JSON object of a body."""
    if not body.strip():
        raise RegistryError(422, "The request has no body, and needs one")
    try:
        found = msgspec.json.decode(body)
    except (msgspec.DecodeError, RecursionError) as problem:
        raise RegistryError(400, f"The body is not JSON: {problem}") from None
    if found is None:
        raise RegistryError(422, "The request has no body, and needs one")
    if not isinstance(found, dict):
        raise RegistryError(400, "The body must be a JSON object")
    return found


def read_draft(body: bytes) -> NewSchema:
    """The schema to register, look up or check."""
    fields = read_object(body)
    references = fields.get("references") or []
    if not isinstance(references, list) or len(references) > REFERENCES_MAX:
        raise RegistryError(400, f"references must be a list of at most {REFERENCES_MAX}")
    return NewSchema(
        _text(fields, "schema") or "",
        _text(fields, "schemaType") or AVRO,
        tuple(_reference(item) for item in references),
        read_metadata(fields.get("metadata"), "metadata"),
        read_rule_set(fields.get("ruleSet"), "ruleSet"),
        _number(fields, "id", -1),
        _number(fields, "version", 0),
    )


def read_config(body: bytes) -> dict[str, Any]:
    """The changes of a configuration by stored names; None deletes a field."""
    fields = read_object(body)
    changes: dict[str, Any] = {}
    for name in ("alias", "compatibilityPolicy", "compatibilityGroup"):
        if name in fields:
            changes[name] = _text(fields, name)
    for name in ("normalize", "validateFields", "validateRules"):
        if name in fields:
            changes[name] = _boolean(fields, name)
    for name in DEFAULTS_AND_OVERRIDES:
        if name in fields:
            read = read_metadata if name.endswith("Metadata") else read_rule_set
            changes[name] = read(fields[name], name)
    if "compatibility" in fields or LEVEL in fields:
        level = _text(fields, "compatibility" if "compatibility" in fields else LEVEL)
        if level is not None and level.upper() not in LEVELS:
            raise invalid_level()
        changes[LEVEL] = None if level is None else level.upper()
    if not changes:
        raise invalid_level()
    return changes


def read_mode(body: bytes) -> str:
    mode = (_text(read_object(body), "mode") or "").upper()
    if mode not in MODES:
        raise invalid_mode()
    return mode


def read_metadata(value: Any, name: str) -> Mapping[str, Any] | None:
    """Metadata with sorted parts; empty ones are left out."""
    if value is None:
        return None
    fields = _object(value, name)
    found: dict[str, Any] = {}
    if tags := _object(fields.get("tags") or {}, f"{name}.tags"):
        found["tags"] = {key: _texts(tags[key], f"{name}.tags") for key in sorted(tags)}
    if properties := _object(fields.get("properties") or {}, f"{name}.properties"):
        found["properties"] = {key: _as_text(properties[key], f"{name}.properties") for key in sorted(properties)}
    if sensitive := fields.get("sensitive"):
        found["sensitive"] = _texts(sensitive, f"{name}.sensitive")
    return found


def read_rule_set(value: Any, name: str) -> Mapping[str, Any] | None:
    """Rules are stored, and never executed."""
    if value is None:
        return None
    fields = _object(value, name)
    found: dict[str, Any] = {}
    names: set[str] = set()
    for group, modes in RULE_GROUPS.items():
        rules = fields.get(group)
        if rules is None:
            continue
        if not isinstance(rules, list):
            raise RegistryError(400, f"{name}.{group} must be a list")
        found[group] = [_rule(_object(item, f"{name}.{group}"), group, modes) for item in rules]
        for rule in found[group]:
            if rule["name"] in names:
                raise invalid_rule_set(f"Found rule with duplicate name '{rule['name']}'")
            names.add(rule["name"])
    return found


def _rule(fields: Mapping[str, Any], group: str, modes: tuple[str, ...]) -> dict[str, Any]:
    rule_name = _text(fields, "name")
    if rule_name is None:
        raise invalid_rule_set("Missing rule name")
    if not rule_name:
        raise invalid_rule_set("Empty rule name")
    if len(rule_name) > RULE_NAME_MAX:
        raise invalid_rule_set("Rule name too long")
    if not RULE_NAME.fullmatch(rule_name):
        raise invalid_rule_set(f"Illegal character in rule name: {rule_name}")
    if _text(fields, "type") is None:
        raise invalid_rule_set("Missing rule type")
    mode = _text(fields, "mode")
    if mode is not None and mode not in modes:
        what = "Migration rules" if group == "migrationRules" else "Domain rules"
        raise invalid_rule_set(f"{what} can only be {', '.join(modes)}")
    if (kind := _text(fields, "kind")) is not None and kind not in RULE_KINDS:
        raise RegistryError(400, f"The kind of a rule is one of {', '.join(RULE_KINDS)}")
    found: dict[str, Any] = {}
    for name in ("name", "doc", "kind", "mode", "type", "tags", "params", "expr", "onSuccess", "onFailure"):
        if fields.get(name) is None:
            continue
        if name == "tags":
            found[name] = _texts(fields[name], "tags of a rule")
        elif name == "params":
            parameters = _object(fields[name], "params of a rule")
            found[name] = {key: _as_text(parameters[key], "params of a rule") for key in sorted(parameters)}
        else:
            found[name] = _text(fields, name)
    return {**found, "disabled": bool(_boolean(fields, "disabled"))}


def _reference(value: Any) -> Reference:
    fields = _object(value, "references")
    name, subject = _text(fields, "name"), _text(fields, "subject")
    if name is None or subject is None:
        raise RegistryError(422, "A reference needs a name, a subject and a version")
    return Reference(name, subject, _number(fields, "version", -1))


def _object(value: Any, what: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise RegistryError(400, f"{what} must be an object")
    return value


def _texts(value: Any, what: str) -> list[str]:
    if not isinstance(value, list):
        raise RegistryError(400, f"{what} must contain lists of text")
    return sorted({_as_text(item, what) for item in value})


def _text(fields: Mapping[str, Any], name: str) -> str | None:
    value = fields.get(name)
    return None if value is None else _as_text(value, name)


def _as_text(value: Any, what: str) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | float):
        return str(value)
    raise RegistryError(400, f"{what} must be text")


def _number(fields: Mapping[str, Any], name: str, default: int) -> int:
    value = fields.get(name)
    if value is None:
        return default
    if isinstance(value, str) and re.fullmatch(r"-?\d{1,10}", value):
        value = int(value)
    if not isinstance(value, int) or isinstance(value, bool) or not -(2**31) <= value <= VERSION_MAX:
        raise RegistryError(400, f"{name} must be a whole number of 32 bits")
    return max(value, -1)


def _boolean(fields: Mapping[str, Any], name: str) -> bool | None:
    value = fields.get(name)
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, str) and value in ("true", "false"):
        return value == "true"
    raise RegistryError(400, f"{name} must be true or false")


# ---- responses
def version_response(
    schema: Schema, *, accepts_unknown_properties: bool, aliases: Sequence[str] = ()
) -> dict[str, Any]:
    """One version of a subject."""
    found: dict[str, Any] = {"subject": schema.subject, "version": schema.version, "id": schema.id}
    if accepts_unknown_properties:
        found["guid"] = schema.guid
    found |= schema.details()
    found["schema"] = schema.text
    if accepts_unknown_properties and schema.is_deleted:
        found["deleted"] = True
    if aliases:
        found["aliases"] = list(aliases)
    return found


def schema_response(
    schema: Schema, shown: str, *, accepts_unknown_properties: bool, max_id: int | None = None
) -> dict[str, Any]:
    """A schema by ID or GUID."""
    found: dict[str, Any] = {}
    if accepts_unknown_properties:
        found |= {"subject": schema.subject, "version": schema.version, "id": schema.id, "guid": schema.guid}
    found |= schema.details()
    found["schema"] = shown
    if max_id is not None:
        found["maxId"] = max_id
    return found


def registered_response(result: Registered, *, accepts_unknown_properties: bool) -> dict[str, Any]:
    schema = result.schema
    if not (accepts_unknown_properties or result.has_defaults):
        return {"id": schema.id}
    found: dict[str, Any] = {"id": schema.id, "version": schema.version}
    if accepts_unknown_properties:
        found["guid"] = schema.guid
    return {**found, **schema.details(), "schema": schema.text} if result.has_defaults else found


def config_response(found: Config) -> dict[str, Any]:
    return dict(found)


def config_request_response(changes: Config) -> dict[str, Any]:
    """The response to a configuration change repeats it, with another name for the level."""
    found = {name: value for name, value in changes.items() if value is not None and name != LEVEL}
    level = changes.get(LEVEL)
    return found if level is None else {**found, "compatibility": level}


def compatibility_response(problems: Sequence[str], *, is_verbose: bool) -> dict[str, Any]:
    found: dict[str, Any] = {"is_compatible": not problems}
    if is_verbose:
        found["messages"] = list(problems)
    return found
