"""GET /api/openapi.json: the API described from its table of routes."""

from __future__ import annotations

import re
from functools import cache
from typing import Any

import msgspec
from starlette.responses import Response

from ottla import __version__
from ottla.console.api.call import Call, Route

REFERENCE = "#/components/schemas/{name}"


async def show(call: Call) -> Response:
    cookie = call.console.authenticator.cookie_name
    return Response(_encoded(tuple(call.console.routes), cookie), media_type="application/json")


@cache
def _encoded(routes: tuple[Route, ...], cookie: str) -> bytes:
    return msgspec.json.encode(description(routes, cookie))


def description(routes: tuple[Route, ...], cookie: str) -> dict[str, Any]:
    types = [kind for route in routes for kind in (route.answer, route.body) if kind is not None]
    _, components = msgspec.json.schema_components(types, ref_template=REFERENCE)
    paths: dict[str, dict[str, Any]] = {}
    for route in routes:
        paths.setdefault(route.path, {})[route.method.lower()] = _operation(route)
    return {
        "openapi": "3.1.0",
        "info": {"title": "ottla console", "version": __version__},
        "paths": paths,
        "components": {
            "schemas": {
                **components,
                "Error": {
                    "type": "object",
                    "properties": {"error": {"type": "string"}, "message": {"type": "string"}},
                    "required": ["error", "message"],
                },
            },
            "securitySchemes": {
                "cookie": {"type": "apiKey", "in": "cookie", "name": cookie},
                "basic": {"type": "http", "scheme": "basic"},
                "token": {"type": "http", "scheme": "bearer"},
            },
        },
        "security": [{"cookie": []}, {"basic": []}, {"token": []}],
    }


def _operation(route: Route) -> dict[str, Any]:
    names = re.findall(r"{(\w+)}", route.path)
    operation: dict[str, Any] = {
        "operationId": re.sub(r"\W+", "_", f"{route.method.lower()}_{route.path.removeprefix('/api/')}").strip("_"),
        "summary": route.summary,
        "description": f"Needs the role {route.required_role.name.lower()}."
        if route.required_role is not None
        else "For all callers.",
        "parameters": [{"name": name, "in": "path", "required": True, "schema": {"type": "string"}} for name in names],
        "responses": {
            "200" if route.answer is not None else "204": _content(route.answer) | {"description": "done"},
            "default": {"description": "what went wrong", "content": _json({"$ref": REFERENCE.format(name="Error")})},
        },
    }
    if route.body is not None:
        operation["requestBody"] = {"required": True, **_content(route.body)}
    return operation


def _content(kind: Any) -> dict[str, Any]:
    return {} if kind is None else {"content": _json({"$ref": REFERENCE.format(name=kind.__name__)})}


def _json(schema: dict[str, Any]) -> dict[str, Any]:
    return {"application/json": {"schema": schema}}
