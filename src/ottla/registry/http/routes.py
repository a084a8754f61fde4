"""The routes of the API: method, path, handler, and whether it changes something."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from ottla import __version__
from ottla.registry.http import schemas, settings, subjects
from ottla.registry.http.requests import Call, Handler

API_VERSION: Final = "7.9.0"  # the version of Confluent's registry whose responses these are


async def root(_: Call) -> object:
    return {}


async def version(_: Call) -> object:
    return {"version": API_VERSION, "commitId": f"ottla-{__version__}"}


async def cluster(call: Call) -> object:
    clusters = {"kafka-cluster": call.registry.cluster_id, "schema-registry-cluster": call.registry.group}
    return {"scope": {"path": [], "clusters": clusters}, "id": ""}


class Route(NamedTuple):
    """A route; `path` has words, and parameter names in braces."""

    method: str
    path: tuple[str, ...]
    handler: Handler
    is_write: bool = False
    is_immutable: bool = False  # a successful response never changes


def _route(method: str, path: str, handler: Handler, *, is_change: bool = False, is_stable: bool = False) -> Route:
    return Route(method, tuple(part for part in path.split("/") if part), handler, is_change, is_stable)


ROUTES: Final = (
    _route("GET", "/", root, is_stable=True),
    _route("GET", "/v1/metadata/id", cluster, is_stable=True),
    _route("GET", "/v1/metadata/version", version, is_stable=True),
    _route("GET", "/contexts", schemas.contexts),
    _route("GET", "/schemas", schemas.list_schemas),
    _route("GET", "/schemas/types", schemas.types, is_stable=True),
    _route("GET", "/schemas/ids/{id}", schemas.by_id, is_stable=True),
    _route("GET", "/schemas/ids/{id}/schema", schemas.text_by_id, is_stable=True),
    _route("GET", "/schemas/ids/{id}/subjects", schemas.subjects_by_id),
    _route("GET", "/schemas/ids/{id}/versions", schemas.versions_by_id),
    _route("GET", "/schemas/guids/{guid}", schemas.by_guid, is_stable=True),
    _route("GET", "/schemas/guids/{guid}/ids", schemas.ids_by_guid),
    _route("GET", "/subjects", subjects.list_subjects),
    _route("POST", "/subjects/{subject}", subjects.look_up),
    _route("DELETE", "/subjects/{subject}", subjects.delete_subject, is_change=True),
    _route("GET", "/subjects/{subject}/metadata", subjects.latest_with_metadata),
    _route("GET", "/subjects/{subject}/versions", subjects.list_versions),
    _route("POST", "/subjects/{subject}/versions", subjects.register, is_change=True),
    _route("GET", "/subjects/{subject}/versions/{version}", subjects.get_version),
    _route("DELETE", "/subjects/{subject}/versions/{version}", subjects.delete_version, is_change=True),
    _route("GET", "/subjects/{subject}/versions/{version}/schema", subjects.get_text),
    _route("GET", "/subjects/{subject}/versions/{version}/referencedby", subjects.referenced_by),
    _route("POST", "/compatibility/subjects/{subject}/versions", subjects.check_with_all),
    _route("POST", "/compatibility/subjects/{subject}/versions/{version}", subjects.check_with_version),
    _route("GET", "/config", settings.get_config),
    _route("PUT", "/config", settings.set_config, is_change=True),
    _route("DELETE", "/config", settings.delete_config, is_change=True),
    _route("GET", "/config/{subject}", settings.get_config),
    _route("PUT", "/config/{subject}", settings.set_config, is_change=True),
    _route("DELETE", "/config/{subject}", settings.delete_config, is_change=True),
    _route("GET", "/mode", settings.get_mode),
    _route("PUT", "/mode", settings.set_mode, is_change=True),
    _route("DELETE", "/mode", settings.delete_mode, is_change=True),
    _route("GET", "/mode/{subject}", settings.get_mode),
    _route("PUT", "/mode/{subject}", settings.set_mode, is_change=True),
    _route("DELETE", "/mode/{subject}", settings.delete_mode, is_change=True),
)
_BY_LENGTH: Final[dict[int, list[Route]]] = {}
for _each in ROUTES:
    _BY_LENGTH.setdefault(len(_each.path), []).append(_each)


class Found(NamedTuple):
    """A matched route; `methods` are those of the path if the method does not match."""

    route: Route | None
    names: Mapping[str, str]
    methods: Sequence[str] = ()


def find_route(method: str, segments: Sequence[str]) -> Found:
    methods = []
    for route in _BY_LENGTH.get(len(segments), ()):
        names = _match(route.path, segments)
        if names is None:
            continue
        if route.method == method:
            return Found(route, names)
        methods.append(route.method)
    return Found(None, {}, methods)


def _match(path: Sequence[str], segments: Sequence[str]) -> dict[str, str] | None:
    names: dict[str, str] = {}
    for part, segment in zip(path, segments, strict=True):
        if part[0] == "{":
            names[part[1:-1]] = segment
        elif part != segment:
            return None
    return names
