"""The routes of the API: method, path, handler, and whether it changes something."""

from __future__ import annotations

from typing import Final, NamedTuple

from ottla import __version__
from ottla.registry.http import schemas, settings, subjects
from ottla.registry.http.requests import Call, Handler
from ottla.web.routing import RouteTable

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
    path: str
    handler: Handler
    is_write: bool = False
    is_immutable: bool = False  # a successful response never changes


ROUTES: Final = (
    Route("GET", "/", root, is_immutable=True),
    Route("GET", "/v1/metadata/id", cluster, is_immutable=True),
    Route("GET", "/v1/metadata/version", version, is_immutable=True),
    Route("GET", "/contexts", schemas.contexts),
    Route("GET", "/schemas", schemas.list_schemas),
    Route("GET", "/schemas/types", schemas.types, is_immutable=True),
    Route("GET", "/schemas/ids/{id}", schemas.by_id, is_immutable=True),
    Route("GET", "/schemas/ids/{id}/schema", schemas.text_by_id, is_immutable=True),
    Route("GET", "/schemas/ids/{id}/subjects", schemas.subjects_by_id),
    Route("GET", "/schemas/ids/{id}/versions", schemas.versions_by_id),
    Route("GET", "/schemas/guids/{guid}", schemas.by_guid, is_immutable=True),
    Route("GET", "/schemas/guids/{guid}/ids", schemas.ids_by_guid),
    Route("GET", "/subjects", subjects.list_subjects),
    Route("POST", "/subjects/{subject}", subjects.look_up),
    Route("DELETE", "/subjects/{subject}", subjects.delete_subject, is_write=True),
    Route("GET", "/subjects/{subject}/metadata", subjects.latest_with_metadata),
    Route("GET", "/subjects/{subject}/versions", subjects.list_versions),
    Route("POST", "/subjects/{subject}/versions", subjects.register, is_write=True),
    Route("GET", "/subjects/{subject}/versions/{version}", subjects.get_version),
    Route("DELETE", "/subjects/{subject}/versions/{version}", subjects.delete_version, is_write=True),
    Route("GET", "/subjects/{subject}/versions/{version}/schema", subjects.get_text),
    Route("GET", "/subjects/{subject}/versions/{version}/referencedby", subjects.referenced_by),
    Route("POST", "/compatibility/subjects/{subject}/versions", subjects.check_with_all),
    Route("POST", "/compatibility/subjects/{subject}/versions/{version}", subjects.check_with_version),
    Route("GET", "/config", settings.get_config),
    Route("PUT", "/config", settings.set_config, is_write=True),
    Route("DELETE", "/config", settings.delete_config, is_write=True),
    Route("GET", "/config/{subject}", settings.get_config),
    Route("PUT", "/config/{subject}", settings.set_config, is_write=True),
    Route("DELETE", "/config/{subject}", settings.delete_config, is_write=True),
    Route("GET", "/mode", settings.get_mode),
    Route("PUT", "/mode", settings.set_mode, is_write=True),
    Route("DELETE", "/mode", settings.delete_mode, is_write=True),
    Route("GET", "/mode/{subject}", settings.get_mode),
    Route("PUT", "/mode/{subject}", settings.set_mode, is_write=True),
    Route("DELETE", "/mode/{subject}", settings.delete_mode, is_write=True),
)
ROUTE_TABLE: Final = RouteTable((route.method, route.path, route) for route in ROUTES)
