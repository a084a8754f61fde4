"""Which version of a request to send: the highest that both sides know (ApiVersions, KIP-35 and KIP-511)."""

from __future__ import annotations

from collections.abc import Mapping

from ottla import __version__
from ottla.base.errors import Error
from ottla.client.connection import Connection, not_kafka
from ottla.client.errors import refusal
from ottla.protocol.codec import ProtocolError, decode
from ottla.protocol.messages.cluster import ApiVersionsRequest, ApiVersionsResponse
from ottla.protocol.schema import Layout, layout_of


def best_version(ours: Layout, offered: Mapping[int, tuple[int, int]]) -> int | None:
    """The highest version inside both ranges, or None if they do not meet."""
    if ours.api_key is None or ours.api_key not in offered:
        return None
    low, high = offered[ours.api_key]
    best = min(high, ours.max_version)
    return best if best >= max(low, ours.min_version) else None


def offered_versions(connection: Connection, timeout_ms: int) -> dict[int, tuple[int, int]]:
    """Ask a broker for its version ranges, by API key."""
    version = layout_of(ApiVersionsRequest).max_version
    answer = _ask(connection, version, timeout_ms)
    if answer.error_code == Error.UNSUPPORTED_VERSION:
        # The broker is older than we are: its refusal tells what it does know, and version 0 is always known.
        ranges = {item.api_key: (item.min_version, item.max_version) for item in answer.api_keys}
        version = best_version(layout_of(ApiVersionsRequest), ranges) or 0
        answer = _ask(connection, version, timeout_ms)
    if answer.error_code:
        raise refusal(answer.error_code)
    return {item.api_key: (item.min_version, item.max_version) for item in answer.api_keys}


def _ask(connection: Connection, version: int, timeout_ms: int) -> ApiVersionsResponse:
    request = ApiVersionsRequest(client_software_name="ottla", client_software_version=__version__)
    body = connection.exchange(request, version, timeout_ms)
    # A broker that does not know our version answers in version 0, whatever was asked.
    refused = bytes(body[:2]) == int(Error.UNSUPPORTED_VERSION).to_bytes(2, "big")
    try:
        return decode(ApiVersionsResponse, 0 if refused else version, body)[0]
    except ProtocolError:
        raise not_kafka(connection.address) from None
