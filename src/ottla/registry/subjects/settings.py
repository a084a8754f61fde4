"""Compatibility levels, modes and other settings, and their scopes: subject, context, global.

Rules:
1. Settings of a subject replace all others; only a missing level is looked up in the wider scopes.
2. The default context has the global settings; any other context has its own, or the defaults.
3. A global READONLY_OVERRIDE overrides every other mode.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from ottla.registry.formats.compatibility import LEVELS
from ottla.registry.subjects.schema import DEFAULT_CONTEXT, context_of, context_prefix, qualified, within
from ottla.registry.subjects.state import RegistryState

READWRITE: Final = "READWRITE"
READONLY: Final = "READONLY"
READONLY_OVERRIDE: Final = "READONLY_OVERRIDE"
IMPORT: Final = "IMPORT"
FORWARD: Final = "FORWARD"
MODES: Final = (READWRITE, READONLY, READONLY_OVERRIDE, IMPORT, FORWARD)
LEVEL: Final = "compatibilityLevel"
DEFAULT_LEVEL: Final = "BACKWARD"
DEFAULTS_AND_OVERRIDES: Final = ("defaultMetadata", "overrideMetadata", "defaultRuleSet", "overrideRuleSet")
# The fields of a configuration, in Confluent's order.
FIELDS: Final = (
    "alias",
    "normalize",
    "validateFields",
    "validateRules",
    LEVEL,
    "compatibilityPolicy",
    "compatibilityGroup",
    *DEFAULTS_AND_OVERRIDES,
)
Config = Mapping[str, Any]


def own_config(state: RegistryState, subject: str | None, default_level: str) -> Config | None:
    """The settings of exactly this subject or context; globally there is always a level."""
    found = state.configs.get(subject)
    if subject is None:
        return {LEVEL: default_level, **known_fields(found or {})}
    return known_fields(found) if found is not None else None


def config_in_scope(state: RegistryState, subject: str | None, default_level: str) -> Config:
    found = own_config(state, subject, default_level)
    if found is not None and found.get(LEVEL):
        return found
    above = _context_config(state, subject, default_level)
    return above if found is None else {**found, LEVEL: above[LEVEL]}


def _context_config(state: RegistryState, subject: str | None, default_level: str) -> Config:
    context = context_of(subject)
    place = None if context == DEFAULT_CONTEXT else context_prefix(context)
    return {LEVEL: default_level, **known_fields(state.configs.get(place) or {})}


def known_fields(config: Config) -> Config:
    """The known fields, with a valid level."""
    found = {name: config[name] for name in FIELDS if config.get(name) is not None}
    if found.get(LEVEL) not in LEVELS:
        found.pop(LEVEL, None)
    return found


def own_mode(state: RegistryState, subject: str | None) -> str | None:
    if state.modes.get(None) == READONLY_OVERRIDE:
        return READONLY_OVERRIDE
    return state.modes.get(subject) or (READWRITE if subject is None else None)


def mode_in_scope(state: RegistryState, subject: str | None) -> str:
    found = own_mode(state, subject)
    if found is not None:
        return found
    context = context_of(subject)
    place = None if context == DEFAULT_CONTEXT else context_prefix(context)
    return state.modes.get(place) or READWRITE


def is_read_only(state: RegistryState, subject: str | None) -> bool:
    return mode_in_scope(state, subject) in (READONLY, READONLY_OVERRIDE)


def resolve_alias(state: RegistryState, subject: str) -> str:
    """The target of an alias; any other subject itself."""
    alias = (state.configs.get(subject) or {}).get("alias")
    return within(subject, alias) if isinstance(alias, str) and alias and qualified(alias).name else subject
