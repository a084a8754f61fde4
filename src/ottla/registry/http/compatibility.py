"""/compatibility: would this schema be taken?"""

from __future__ import annotations

from collections.abc import Sequence

from ottla.registry import errors
from ottla.registry.http import answers
from ottla.registry.http.calls import LATEST, Call
from ottla.registry.subjects.schema import Schema
from ottla.registry.subjects.settings import config_in_scope


async def with_version(call: Call) -> object:
    state, subject, number = call.registry.state, call.subject, call.version()
    found = state.version(subject, number)
    if found is None and number != LATEST:
        raise errors.version_not_found(number)
    return await _verdict(call, [] if found is None else [found])


async def with_all(call: Call) -> object:
    return await _verdict(call, call.registry.state.versions(call.subject))


async def _verdict(call: Call, earlier: Sequence[Schema]) -> object:
    registry, subject = call.registry, call.subject
    config = config_in_scope(registry.state, subject, registry.default_level)
    is_normalized = call.flag("normalize") or config.get("normalize") is True
    draft, parsed = await registry.read(subject, call.draft(), is_normalized=is_normalized, is_new=True)
    problems = await registry.incompatibilities(draft, parsed, earlier, config)
    return answers.verdict(problems, is_verbose=call.flag("verbose"))
