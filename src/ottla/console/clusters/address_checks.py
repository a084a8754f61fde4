"""Checks of addresses that a page sends: those that can never work are rejected. Pure: resolves no names.

Resolved addresses are checked at each connection (operations/public_addresses.py).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from urllib.parse import urlsplit

from ottla.base.properties import read_properties
from ottla.client.addresses import parse_bootstrap
from ottla.console.clusters.cluster import ClusterAddress
from ottla.console.clusters.metrics import HOST_PLACEHOLDER, ID_PLACEHOLDER, MetricAddresses
from ottla.operations.public_addresses import forbidden_reason
from ottla.operations.schema_registry.client_config import URL as REGISTRY_URL
from ottla.operations.schema_registry.client_config import address_of
from ottla.operations.schema_registry.errors import SchemaError

NON_KAFKA_SCHEMES = frozenset({"data", "file", "ftp", "ftps", "gopher", "http", "https", "jar", "ldap", "ldaps"})


class UnusableAddressError(ValueError):
    """An address that can never work, with the reason."""

    def __init__(self, address: str, reason: str) -> None:
        super().__init__(f"{address}: {reason}")
        self.address = address
        self.reason = reason


def check_cluster(address: ClusterAddress) -> None:
    """Raises UnusableAddressError, and ClientError or PropertiesError if a part cannot be parsed."""
    for text in address.bootstrap.split(","):
        scheme, is_named, _ = text.strip().partition("://")
        if is_named and scheme.lower() in NON_KAFKA_SCHEMES:
            raise UnusableAddressError(text.strip(), "write brokers as host:port")
    for broker in parse_bootstrap(address.bootstrap):
        # Brokers may have private addresses, unlike HTTP endpoints.
        check_host(broker.host, broker.host, allows_private=True, allows_link_local=address.allows_private)
    properties = read_properties(address.properties)
    _check_registry(properties, allows_private=address.allows_private)
    for key, value in properties.items():
        if key.endswith(".url") and key != REGISTRY_URL:
            _check_url(key, value, allows_private=address.allows_private)


def check_metrics(addresses: MetricAddresses, *, allows_private: bool) -> None:
    """Raises UnusableAddressError. Hosts of brokers may be private; they are unknown here, so private hosts pass."""
    patterns: Iterable[str | None] = (addresses.pattern, *addresses.by_broker.values())
    for text in patterns:
        host = urlsplit((text or "").replace(HOST_PLACEHOLDER, "host").replace(ID_PLACEHOLDER, "1")).hostname or ""
        check_host(text or "", host, allows_private=True, allows_link_local=allows_private)


def check_host(shown: str, host: str, *, allows_private: bool, allows_link_local: bool) -> None:
    """Raises UnusableAddressError."""
    reason = forbidden_reason(host, is_internal_allowed=allows_private, is_link_local_allowed=allows_link_local)
    if reason:
        raise UnusableAddressError(shown, reason)


def _check_registry(properties: Mapping[str, str], *, allows_private: bool) -> None:
    registry = address_of(properties)
    try:
        nodes = registry.nodes() if registry is not None else []
    except SchemaError as problem:
        raise UnusableAddressError(REGISTRY_URL, str(problem)) from None
    for node in nodes:
        _check_url(REGISTRY_URL, node.geturl(), allows_private=allows_private)


def _check_url(key: str, text: str, *, allows_private: bool) -> None:
    try:
        parts = urlsplit(text)
    except ValueError:
        raise UnusableAddressError(key, "this is not a valid address") from None
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise UnusableAddressError(key, "an address must start with https:// or http://")
    check_host(key, parts.hostname, allows_private=allows_private, allows_link_local=allows_private)
