"""The clusters of the console: list, add, test, change, remove."""

from __future__ import annotations

import asyncio
import re

import msgspec

from ottla.base.properties import PropertiesError
from ottla.client.cluster import describe_cluster
from ottla.client.errors import ClientError
from ottla.console.api.call import Call
from ottla.console.api.errors import ApiError, Sentence, bad_request, conflict, from_client_error, not_found
from ottla.console.auth import rights
from ottla.console.auth.rights import Role
from ottla.console.clusters.address_checks import UnusableAddressError, check_cluster
from ottla.console.clusters.cluster import ClusterAddress, SecretMovedError
from ottla.console.clusters.snapshot import Part
from ottla.console.store import Tables

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")
TEST_TIMEOUT_MS, TEST_TIMEOUT_MIN_MS = 5_000, 2_000  # for one address, and for each of many
TEST_ADDRESSES_MAX = 10


class ClusterRow(msgspec.Struct, frozen=True):
    name: str
    bootstrap: str
    properties: str  # without secrets; empty for callers who may not change them
    is_stored: bool
    cluster_id: str | None
    brokers: int
    problem: str | None
    role: str
    may_read_messages: bool


class ClusterList(msgspec.Struct, frozen=True):
    clusters: list[ClusterRow]


class ClusterBody(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """How to connect to a cluster; `properties` as in a client's properties file."""

    bootstrap: str
    properties: str = ""


class NewCluster(ClusterBody, forbid_unknown_fields=True, kw_only=True):
    name: str


class Reached(msgspec.Struct, frozen=True):
    """The result of a test."""

    cluster_id: str
    brokers: int


async def list_clusters(call: Call) -> ClusterList:
    rows = []
    addresses = {address.name: address for address in await call.console.store.run(Tables.clusters)}
    addresses |= {name: cluster.address for name, cluster in call.console.clusters.items()}
    for name in sorted(addresses, key=lambda each: (each != "default", each)):
        role = rights.highest_role(call.caller.grants, name)
        if role is not None:
            rows.append(_cluster_row(call, addresses[name], role))
    return ClusterList(rows)


async def add_cluster(call: Call) -> ClusterRow:
    body: NewCluster = call.body
    address = ClusterAddress(_checked_name(body.name), body.bootstrap, body.properties)
    call.audit(body.name, after=_audit_address(address))
    _check_addresses(call, address)
    if body.name in call.console.clusters or body.name in call.console.failed_clusters:
        raise ApiError(409, "CLUSTER_ALREADY_EXISTS", Sentence("there is a cluster {0} already", body.name))
    _add(call, address)
    await call.console.store.run(Tables.put_cluster, address)
    return _cluster_row(call, address, Role.ADMIN)


async def change_cluster(call: Call) -> ClusterRow:
    old = await _stored_address(call)
    body: ClusterBody = call.body
    address = ClusterAddress(old.name, body.bootstrap, _unmasked(old, body))
    call.audit(old.name, _audit_address(old), _audit_address(address))
    _check_addresses(call, address)
    _add(call, address)
    await call.console.store.run(Tables.put_cluster, address)
    return _cluster_row(call, address, Role.ADMIN)


async def forget_cluster(call: Call) -> None:
    old = await _stored_address(call)
    call.audit(old.name, _audit_address(old))
    if call.console.runner.current(old.name) is not None:
        words = "partitions are being moved in this cluster: cancel the move first, or its throttle would remain"
        raise ApiError(409, "RUN_UNDER_WAY", words)
    await call.console.store.run(Tables.drop_cluster, old.name)
    call.console.runner.runs.pop(old.name, None)
    await call.console.alerts.delete_cluster(old.name)
    call.console.remove(old.name)


async def test_cluster(call: Call) -> Reached:
    """Connect once, without storing anything."""
    body: NewCluster = call.body
    address = ClusterAddress(body.name, body.bootstrap, body.properties)
    known = call.console.clusters.get(body.name)
    if known is not None:
        address = address._replace(properties=_unmasked(known.address, body))
    _check_addresses(call, address)
    with call.console.tests.take():
        return await asyncio.to_thread(_connect, call.console.restricted(address))


def _connect(address: ClusterAddress) -> Reached:
    try:
        client = address.make_client(TEST_TIMEOUT_MS)
        client.bootstrap = client.bootstrap[:TEST_ADDRESSES_MAX]
        client.timeout_ms = max(TEST_TIMEOUT_MS // len(client.bootstrap), TEST_TIMEOUT_MIN_MS)
    except PropertiesError as problem:
        raise bad_request("properties, line {0}: {1}", problem.line, problem.cause) from None
    except ClientError as problem:
        raise bad_request(str(problem)) from None
    try:
        with client:
            found = describe_cluster(client)
            return Reached(found.cluster_id, len(found.brokers))
    except ClientError as problem:
        raise from_client_error(problem) from None


def _unmasked(old: ClusterAddress, body: ClusterBody) -> str:
    try:
        return _with_property_errors(lambda text: old.unmask_properties(text, body.bootstrap), body.properties)
    except SecretMovedError as problem:
        raise bad_request(str(problem)) from None


def _with_property_errors(unmask: object, text: str) -> str:
    assert callable(unmask)
    try:
        return str(unmask(text))
    except PropertiesError as problem:
        raise bad_request("properties, line {0}: {1}", problem.line, problem.cause) from None


def _check_addresses(call: Call, address: ClusterAddress) -> None:
    try:
        check_cluster(call.console.restricted(address))
    except PropertiesError as problem:
        raise bad_request("properties, line {0}: {1}", problem.line, problem.cause) from None
    except ClientError as problem:
        raise bad_request(str(problem)) from None
    except UnusableAddressError as problem:
        raise bad_request("{0} can never work: {1}", problem.address, problem.reason) from None


def _add(call: Call, address: ClusterAddress) -> None:
    try:
        call.console.add(address)
    except PropertiesError as problem:
        raise bad_request("properties, line {0}: {1}", problem.line, problem.cause) from None
    except ClientError as problem:
        raise bad_request(str(problem)) from None


async def _stored_address(call: Call) -> ClusterAddress:
    name = call.parameters["name"]
    stored = {address.name: address for address in await call.console.store.run(Tables.clusters)}
    if name in call.console.clusters and not call.console.clusters[name].address.is_stored:
        words = "cluster {0} is configured on the command line of the console: change it there"
        raise conflict("NAMED_AT_START", words, name)
    if name not in stored:
        raise not_found("there is no cluster {0}", name)
    return stored[name]


def _checked_name(name: str) -> str:
    if not NAME.fullmatch(name):
        raise bad_request("the name of a cluster consists of at most 100 letters, digits, '.', '_' and '-'")
    return name


def _audit_address(address: ClusterAddress) -> dict[str, str]:
    return {
        "bootstrap": address.bootstrap,
        "properties": _with_property_errors(lambda _: address.masked_properties(), ""),
    }


def _cluster_row(call: Call, address: ClusterAddress, role: Role) -> ClusterRow:
    cluster = call.console.clusters.get(address.name)
    snapshot = cluster.snapshot if cluster is not None else None
    problem = (
        snapshot.state(Part.METADATA).problem
        if snapshot is not None
        else call.console.failed_clusters.get(address.name)
    )
    is_admin = rights.has_role(call.caller.grants, Role.ADMIN)
    return ClusterRow(
        address.name,
        address.bootstrap,
        _with_property_errors(lambda _: address.masked_properties(), "") if is_admin else "",
        address.is_stored,
        snapshot.cluster_id if snapshot is not None else None,
        len(snapshot.brokers) if snapshot is not None else 0,
        problem,
        role.name.lower(),
        rights.may_read_some_messages(call.caller.grants, address.name),
    )
