"""/config and /mode: global, of a context or of a subject."""

from __future__ import annotations

from ottla.registry import errors
from ottla.registry.http import bodies
from ottla.registry.http.bodies import read_config, read_mode
from ottla.registry.http.requests import Call
from ottla.registry.subjects import decisions
from ottla.registry.subjects.schema import has_controls
from ottla.registry.subjects.settings import config_in_scope, mode_in_scope, own_config, own_mode


async def get_config(call: Call) -> object:
    registry, subject = call.registry, call.setting_subject
    if call.flag("defaultToGlobal"):
        return bodies.config_response(config_in_scope(registry.state, subject, registry.default_level))
    found = own_config(registry.state, subject, registry.default_level)
    if found is None:
        assert subject is not None
        raise errors.level_not_configured(subject)
    return bodies.config_response(found)


async def set_config(call: Call) -> object:
    changes = read_config(call.body)
    await call.registry.execute(decisions.set_config, _checked(call), changes)
    return bodies.config_request_response(changes)


async def delete_config(call: Call) -> object:
    registry = call.registry
    found = await registry.execute(decisions.delete_config, call.setting_subject, registry.default_level)
    return bodies.config_response(found)


async def get_mode(call: Call) -> object:
    state, subject = call.registry.state, call.setting_subject
    mode = mode_in_scope(state, subject) if call.flag("defaultToGlobal") else own_mode(state, subject)
    if mode is None:
        assert subject is not None
        raise errors.mode_not_configured(subject)
    return {"mode": mode}


async def set_mode(call: Call) -> object:
    mode = read_mode(call.body)
    subject = _checked(call)
    _check_mode_changes(call)
    await call.registry.execute(decisions.set_mode, subject, mode, is_forced=call.flag("force"))
    return {"mode": mode}


async def delete_mode(call: Call) -> object:
    _check_mode_changes(call)
    return {"mode": await call.registry.execute(decisions.delete_mode, call.setting_subject)}


def _check_mode_changes(call: Call) -> None:
    if not call.registry.has_mode_changes:
        raise errors.not_permitted("Mode changes are not allowed")


def _checked(call: Call) -> str | None:
    subject = call.setting_subject
    if subject is not None and has_controls(subject):
        raise errors.invalid_subject(subject)
    return subject
