"""The clusters that the console knows: list, add, test, change, forget."""

from __future__ import annotations

import asyncio
import re

import msgspec

from ottla.base.properties import PropertiesError
from ottla.client.cluster import describe_cluster
from ottla.client.errors import ClientError
from ottla.console.api.call import Call
from ottla.console.api.errors import ApiError, Sentence, bad_request, conflict, not_found, of_cluster
from ottla.console.clusters.cluster import Address, SecretMovedError
from ottla.console.clusters.snapshot import Part
from ottla.console.people import rights
from ottla.console.people.rights import Role
from ottla.console.store import Tables

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")
TEST_TIMEOUT_MS, TEST_TIMEOUT_MIN_MS = 5_000, 2_000  # for an address, if there is one or many
TEST_ADDRESSES_MAX = 10
TESTS_MAX = 2  # at once: they take threads that everybody needs


class ClusterRow(msgspec.Struct, frozen=True):
    name: str
    bootstrap: str
    properties: str  # without secrets; empty for those who may not change them
    is_stored: bool
    cluster_id: str | None
    brokers: int
    problem: str | None
    role: str
    may_read_messages: bool


class ClusterList(msgspec.Struct, frozen=True):
    clusters: list[ClusterRow]


class ClusterBody(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """How to reach a cluster; `properties` as in a client's properties file."""

    bootstrap: str
    properties: str = ""


class NewCluster(ClusterBody, forbid_unknown_fields=True, kw_only=True):
    name: str


class Reached(msgspec.Struct, frozen=True):
    """What a test has found."""

    cluster_id: str
    brokers: int


async def list_clusters(call: Call) -> ClusterList:
    rows = []
    addresses = {address.name: address for address in await call.console.store.run(Tables.clusters)}
    addresses |= {name: cluster.address for name, cluster in call.console.clusters.items()}
    for name in sorted(addresses, key=lambda each: (each != "default", each)):
        role = rights.role_on(call.caller.grants, name)
        if role is not None:
            rows.append(_row(call, addresses[name], role))
    return ClusterList(rows)


async def add_cluster(call: Call) -> ClusterRow:
    body: NewCluster = call.body
    address = Address(_good_name(body.name), body.bootstrap, body.properties)
    call.note(body.name, after=_noted(address))
    if body.name in call.console.clusters or body.name in call.console.broken:
        raise ApiError(409, "CLUSTER_ALREADY_EXISTS", Sentence("there is a cluster {0} already", body.name))
    _add(call, address)
    await call.console.store.run(Tables.put_cluster, address)
    return _row(call, address, Role.ADMIN)


async def change_cluster(call: Call) -> ClusterRow:
    old = await _stored(call)
    body: ClusterBody = call.body
    address = Address(old.name, body.bootstrap, _unmasked(old, body))
    call.note(old.name, _noted(old), _noted(address))
    _add(call, address)
    await call.console.store.run(Tables.put_cluster, address)
    return _row(call, address, Role.ADMIN)


async def forget_cluster(call: Call) -> None:
    old = await _stored(call)
    call.note(old.name, _noted(old))
    if call.console.runner.current(old.name) is not None:
        words = "partitions are being moved there: cancel that first, or its throttle would stay"
        raise ApiError(409, "RUN_UNDER_WAY", words)
    await call.console.store.run(Tables.drop_cluster, old.name)
    call.console.runner.runs.pop(old.name, None)
    call.console.remove(old.name)


async def test_cluster(call: Call) -> Reached:
    """Connect once, without keeping anything."""
    body: NewCluster = call.body
    address = Address(body.name, body.bootstrap, body.properties)
    known = call.console.clusters.get(body.name)
    if known is not None:
        address = address._replace(properties=_unmasked(known.address, body))
    if call.console.cluster_tests >= TESTS_MAX:
        raise ApiError(429, "TOO_MANY", Sentence("{0} tests are running: wait", TESTS_MAX), {"Retry-After": "5"})
    call.console.cluster_tests += 1
    try:
        return await asyncio.to_thread(_reach, call.console.bounded(address))
    finally:
        call.console.cluster_tests -= 1


def _reach(address: Address) -> Reached:
    try:
        client = address.client(TEST_TIMEOUT_MS)
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
        raise of_cluster(problem) from None


def _unmasked(old: Address, body: ClusterBody) -> str:
    try:
        return _checked(lambda text: old.unmasked(text, body.bootstrap), body.properties)
    except SecretMovedError as problem:
        raise bad_request(str(problem)) from None


def _checked(unmask: object, text: str) -> str:
    assert callable(unmask)
    try:
        return str(unmask(text))
    except PropertiesError as problem:
        raise bad_request("properties, line {0}: {1}", problem.line, problem.cause) from None


def _add(call: Call, address: Address) -> None:
    try:
        call.console.add(address)
    except PropertiesError as problem:
        raise bad_request("properties, line {0}: {1}", problem.line, problem.cause) from None
    except ClientError as problem:
        raise bad_request(str(problem)) from None


async def _stored(call: Call) -> Address:
    name = call.parameters["name"]
    stored = {address.name: address for address in await call.console.store.run(Tables.clusters)}
    if name in call.console.clusters and not call.console.clusters[name].address.is_stored:
        raise conflict("NAMED_AT_START", "cluster {0} was named when the console was started: change it there", name)
    if name not in stored:
        raise not_found("there is no cluster {0}", name)
    return stored[name]


def _good_name(name: str) -> str:
    if not NAME.fullmatch(name):
        raise bad_request("the name of a cluster has letters, digits, '.', '_' and '-', 100 of them at most")
    return name


def _noted(address: Address) -> dict[str, str]:
    return {"bootstrap": address.bootstrap, "properties": _checked(lambda _: address.masked(), "")}


def _row(call: Call, address: Address, role: Role) -> ClusterRow:
    cluster = call.console.clusters.get(address.name)
    snapshot = cluster.snapshot if cluster is not None else None
    problem = snapshot.state(Part.METADATA).problem if snapshot is not None else call.console.broken.get(address.name)
    is_admin = rights.may(call.caller.grants, Role.ADMIN)
    return ClusterRow(
        address.name,
        address.bootstrap,
        _checked(lambda _: address.masked(), "") if is_admin else "",
        address.is_stored,
        snapshot.cluster_id if snapshot is not None else None,
        len(snapshot.brokers) if snapshot is not None else 0,
        problem,
        role.name.lower(),
        rights.reads_some_messages(call.caller.grants, address.name),
    )
