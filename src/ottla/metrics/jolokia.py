"""Beans in Jolokia's protocol: JSON over HTTP, as Telegraf, pyjolokia, hawtio and others read it.

Responses are generated in pieces, bean by bean: an empty piece marks a point to yield to the event loop. Access is
read-only: `write` and `exec` are rejected.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from typing import Any, Final, NamedTuple

from ottla import __version__
from ottla.metrics.beans import SUM, BadNameError, Bean, Pattern, Source, Value, find, parse_pattern

PROTOCOL: Final = "7.2"
BULK_MAX: Final = 200
NOT_FOUND: Final = "javax.management.InstanceNotFoundException"
NO_ATTRIBUTE: Final = "javax.management.AttributeNotFoundException"
BAD_ARGUMENT: Final = "java.lang.IllegalArgumentException"
FORBIDDEN: Final = "java.lang.SecurityException"
BAD_NAME: Final = "javax.management.MalformedObjectNameException"
_JAVA_TYPES: Final = {int: "long", float: "double", str: "java.lang.String", bool: "boolean", dict: "java.util.Map"}


class Request(NamedTuple):
    """One request; a bulk request contains several."""

    type: str
    mbean: str = ""
    attribute: str | list[str] | None = None
    path: str | None = None

    def echo(self) -> dict[str, Any]:
        """Return the request as the response repeats it."""
        fields = {"mbean": self.mbean, "attribute": self.attribute, "path": self.path, "type": self.type}
        return {key: value for key, value in fields.items() if value}


class JolokiaError(Exception):
    """An error response: Jolokia's status and the Java class of the error."""

    def __init__(self, status: int, kind: str, message: str) -> None:
        super().__init__(message)
        self.status = status
        self.kind = kind


class BadRequestError(ValueError):
    """A body without a valid request."""


def parse_get(path: str) -> Request:
    """Parse `read/<mbean>/<attribute>/<inner path>`, `search/<pattern>`, `list/<path>`, `version`."""
    words = [_unescape(word) for word in _split_path(path)]
    kind = words[0] if words else "version"
    if kind == "read" and len(words) > 1:
        attribute = words[2] if len(words) > 2 and words[2] else None
        several = attribute.split(",") if attribute and "," in attribute else attribute
        return Request(kind, words[1], several, "/".join(words[3:]) or None)
    if kind == "search" and len(words) > 1:
        return Request(kind, words[1])
    if kind == "list":
        return Request(kind, path="/".join(words[1:]) or None)
    return Request(kind)


def parse_post(body: bytes) -> list[Request] | Request:
    """Return one request, or a list of them. Raises BadRequestError."""
    try:
        fields = json.loads(body, parse_constant=_refuse_constant)
    except (ValueError, RecursionError) as problem:
        raise BadRequestError(f"the body is not JSON: {problem}") from None
    if isinstance(fields, list):
        if len(fields) > BULK_MAX:
            raise BadRequestError(f"a bulk request may hold {BULK_MAX} questions")
        return [_from_fields(item) for item in fields]
    return _from_fields(fields)


def answer(requests: list[Request] | Request, sources: Sequence[Source], now_s: float) -> Iterator[str]:
    """Yield the JSON text of the response, in pieces."""
    if isinstance(requests, Request):
        yield from _answer_one(requests, sources, now_s)
        return
    yield "["
    for place, request in enumerate(requests):
        yield "," if place else ""
        yield from _answer_one(request, sources, now_s)
    yield "]"


def _answer_one(request: Request, sources: Sequence[Source], now_s: float) -> Iterator[str]:
    start = f'{{"request":{json.dumps(request.echo())},"timestamp":{int(now_s)},'
    try:
        value = _value(request, sources)
        first = next(value)  # raises before the response starts
        while not first:
            yield ""
            first = next(value)
    except JolokiaError as problem:
        error = {"status": problem.status, "error_type": problem.kind, "error": f"{problem.kind} : {problem}"}
        yield start + json.dumps(error)[1:]
        return
    yield f'{start}"status":200,"value":{first}'
    yield from value
    yield "}"


def _value(request: Request, sources: Sequence[Source]) -> Iterator[str]:
    if request.type == "version":
        return iter((json.dumps(_version()),))
    if request.type not in ("read", "search", "list"):
        refused = f"{request.type} is not possible here: this agent only reads"
        raise JolokiaError(403, FORBIDDEN, refused)
    if request.type == "list":
        return _list(request.path, sources)
    try:
        pattern = parse_pattern(request.mbean)
    except BadNameError as problem:
        raise JolokiaError(400, BAD_NAME, str(problem)) from None
    if request.type == "search":
        return _search(pattern, sources)
    return _read_one(request, pattern, sources) if pattern.is_exact else _read_many(request, pattern, sources)


def _read_one(request: Request, pattern: Pattern, sources: Sequence[Source]) -> Iterator[str]:
    for bean in find(sources, pattern):
        if bean is None:
            yield ""
            continue
        yield json.dumps(_selected(bean, request))
        return
    raise JolokiaError(404, NOT_FOUND, request.mbean)


def _read_many(request: Request, pattern: Pattern, sources: Sequence[Source]) -> Iterator[str]:
    is_first = True
    for bean in find(sources, pattern):
        selected = _selected_of_many(bean, request) if bean is not None else None
        if bean is None or selected is None:
            yield ""
            continue
        yield f"{'{' if is_first else ','}{json.dumps(bean.name.canonical)}:{json.dumps(selected)}"
        is_first = False
    if is_first:
        raise JolokiaError(404, NOT_FOUND, f"No MBean with pattern {request.mbean} found for reading attributes")
    yield "}"


def _selected_of_many(bean: Bean, request: Request) -> dict[str, Any] | None:
    """Return the attributes by bean, without beans that lack the requested attribute, as Jolokia does."""
    wanted = [request.attribute] if isinstance(request.attribute, str) else request.attribute
    found = _json_attributes(bean.attributes)
    if wanted:
        found = {name: found[name] for name in wanted if name in found}
    return found or None


def _selected(bean: Bean, request: Request) -> Any:
    shown = _json_attributes(bean.attributes)
    if request.attribute is None or request.attribute == []:
        return shown
    if isinstance(request.attribute, list):
        return {name: shown[name] for name in request.attribute if name in shown}
    if request.attribute not in shown:
        raise JolokiaError(404, NO_ATTRIBUTE, f"No such attribute: {request.attribute}")
    value = shown[request.attribute]
    for word in (request.path or "").split("/") if request.path else ():
        if not isinstance(value, dict) or word not in value:
            raise JolokiaError(404, BAD_ARGUMENT, f"Invalid attribute path {request.path}")
        value = value[word]
    return value


def _json_attributes(attributes: Mapping[str, Value]) -> dict[str, Any]:
    """Return the attributes with NaN replaced, which JSON does not have."""
    return {
        name: None if isinstance(value, float) and not math.isfinite(value) else value
        for name, value in attributes.items()
        if name != SUM
    }


def _search(pattern: Pattern, sources: Sequence[Source]) -> Iterator[str]:
    is_first = True
    for bean in find(sources, pattern):
        yield "" if bean is None else f"{'[' if is_first else ','}{json.dumps(bean.name.canonical)}"
        is_first = is_first and bean is None
    yield "[]" if is_first else "]"


def _list(path: str | None, sources: Sequence[Source]) -> Iterator[str]:
    domain, _, keys = (path or "").partition("/")
    chosen = [source for source in sources if domain in ("", source.domain)]
    if not chosen:
        raise JolokiaError(404, BAD_ARGUMENT, f"No MBean domain {domain}")
    if keys:
        return _list_bean(domain, keys, chosen)
    return _list_beans(chosen, is_one_domain=bool(domain))


def _list_bean(domain: str, keys: str, sources: Sequence[Source]) -> Iterator[str]:
    for bean in find(sources, parse_pattern(f"{domain}:{keys}")):
        if bean is not None:
            yield json.dumps(_described(bean))
            return
        yield ""
    raise JolokiaError(404, BAD_ARGUMENT, f"No MBean {domain}:{keys}")


def _list_beans(sources: Sequence[Source], *, is_one_domain: bool) -> Iterator[str]:
    yield "{" if not is_one_domain else " "
    for place, (domain, group) in enumerate(groupby(sources, key=lambda source: source.domain)):
        yield f"{',' if place else ''}{json.dumps(domain)}:{{" if not is_one_domain else "{"
        is_first = True
        for source in group:
            for bean in source.beans():
                if bean is None:
                    yield ""
                    continue
                keys, described = json.dumps(bean.name.canonical_keys), json.dumps(_described(bean))
                yield f"{'' if is_first else ','}{keys}:{described}"
                is_first = False
        yield "}"
    yield "}" if not is_one_domain else " "


def _described(bean: Bean) -> dict[str, Any]:
    attributes = {
        name: {"rw": False, "type": _JAVA_TYPES[type(value)], "desc": ""}
        for name, value in bean.attributes.items()
        if name != SUM
    }
    return {"class": "ottla.metrics.Bean", "desc": "", "attr": attributes}


def _version() -> dict[str, Any]:
    info = {"product": "ottla", "vendor": "ottla", "version": __version__, "extraInfo": {}}
    return {"protocol": PROTOCOL, "agent": __version__, "config": {"canonicalNaming": "true"}, "info": info}


def _from_fields(fields: Any) -> Request:
    if not isinstance(fields, dict) or not isinstance(fields.get("type"), str):
        raise BadRequestError("each question is a JSON object with a type")
    mbean, attribute, path = fields.get("mbean") or "", fields.get("attribute"), fields.get("path")
    is_list = isinstance(attribute, list) and all(isinstance(item, str) for item in attribute)
    if not isinstance(mbean, str) or not (attribute is None or is_list or isinstance(attribute, str)):
        raise BadRequestError("mbean is a text, attribute a text or a list of texts")
    if path is not None and not isinstance(path, str):
        raise BadRequestError("path is a text")
    return Request(fields["type"].lower(), mbean, attribute or None, path)


def _refuse_constant(text: str) -> Any:
    raise ValueError(f"{text} is no JSON")


def _split_path(path: str) -> list[str]:
    """Split at the slashes that are not escaped by !."""
    words = re.findall(r"((?:![!/\"]|[^/])+)", path)
    return [str(word) for word in words]


def _unescape(word: str) -> str:
    return re.sub(r"!(.)", r"\1", word)
