"""`zookeeper-security-migration.sh --zookeeper.acl=secure|unsecure`: set the ACLs of all znodes of a cluster.

The migration needs no downtime: brokers log in to ZooKeeper (JAAS or a certificate), then all restart with
zookeeper.set.acl=true, then this tool secures the existing znodes.

Unlike Kafka's tool it does not create missing znodes whose data matters (/feature, /controller_epoch and others): an
empty znode has another meaning than a missing one.
"""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

from ottla.cli.java.options import KafkaOptions, Option
from ottla.cli.terminal import EXIT_FAILED, ToolError, warn
from ottla.controller.stores.store import CreateNode, StoreError, TransactionRefusedError
from ottla.security.jaas import FILE_PROPERTY, configured_file
from ottla.security.zookeeper import ZooKeeperClientSecurity, ZooKeeperSecurityError, tool_security

if TYPE_CHECKING:
    from ottla.controller.stores.zookeeper.store import ZooKeeperStore

TOOL = "zookeeper-security-migration.sh"
SUMMARY = (
    "ZooKeeper Migration Tool Help. This tool updates the ACLs of znodes as part of the process of setting up "
    "ZooKeeper authentication."
)
ACL_MODES = {"secure": True, "unsecure": False}
CONNECT = "localhost:2181"
TIMEOUT_MS = 30_000
TLS_FILE = "zk-tls-config-file"
OPTIONS = (
    Option(
        "zookeeper.acl", "secure: only the creator may write nodes. unsecure: all clients may do everything.", "word"
    ),
    Option("zookeeper.connect", f"ZooKeeper: host:port, commas between several, /chroot ({CONNECT}).", "address"),
    Option("zookeeper.session.timeout", f"Session time-out in ms ({TIMEOUT_MS}).", "ms"),
    Option("zookeeper.connection.timeout", f"How long to try to connect, in ms ({TIMEOUT_MS}).", "ms"),
    Option("enable.path.check", "Exit without a change if a root node is missing."),
    Option(TLS_FILE, "File with zookeeper.ssl.* for a ZooKeeper behind TLS.", "file"),
)
WITH_DATA = ("/controller", "/controller_epoch", "/feature", "/latest_producer_id_block", "/migration")


def run(arguments: Sequence[str]) -> int:
    options = KafkaOptions(TOOL, SUMMARY, OPTIONS, arguments)
    try:
        security = tool_security(os.environ, options.text(TLS_FILE))
    except ZooKeeperSecurityError as problem:
        raise ToolError(str(problem)) from None
    if not security.can_authenticate:
        return report_no_login()
    is_secure = ACL_MODES.get(options.text("zookeeper.acl") or "")
    if is_secure is None:
        options.print_usage_and_exit(SUMMARY)
    security.sets_acls = is_secure
    store = open_store(options, security)
    try:
        changed = asyncio.run(migrate(store, is_secure=is_secure, checks_paths=options.has("enable.path.check")))
    except StoreError as problem:
        raise ToolError(str(problem)) from None
    if changed is None:
        return EXIT_FAILED
    warn(f"{TOOL}: {changed} nodes of {store.address} are {'secure' if is_secure else 'open to all clients'} now")
    return 0


def report_no_login() -> int:
    """Report a missing login: without one the tool would lock itself out."""
    path = configured_file()
    if path is not None:
        print(f"ERROR: Security isn't enabled, most likely the file isn't set properly: {path}")
        return EXIT_FAILED
    warn(
        "ERROR: No JAAS configuration file has been specified and no TLS client certificate has been specified. Please "
        f"make sure that you set the system property {FILE_PROPERTY} or provide a ZooKeeper client TLS configuration "
        f"via --{TLS_FILE} <filename> identifying at least zookeeper.ssl.client.enable, zookeeper.clientCnxnSocket, "
        "and zookeeper.ssl.keystore.location"
    )
    return EXIT_FAILED


def open_store(options: KafkaOptions, security: ZooKeeperClientSecurity) -> ZooKeeperStore:
    from ottla.controller.stores.zookeeper.store import ZooKeeperStore  # noqa: PLC0415 (kazoo is slow to load)

    try:
        return ZooKeeperStore(
            options.text("zookeeper.connect") or CONNECT,
            options.number("zookeeper.session.timeout") or TIMEOUT_MS,
            connection_timeout_ms=options.number("zookeeper.connection.timeout") or TIMEOUT_MS,
            makes_chroot=False,
            security=security,
        )
    except ValueError as problem:
        raise ToolError(f"--zookeeper.connect: {problem}") from None


async def migrate(store: ZooKeeperStore, *, is_secure: bool, checks_paths: bool) -> int | None:
    """The number of nodes with changed ACLs; None if nothing was changed."""
    from ottla.controller.stores.zookeeper.access_rights import SECURE_ROOTS  # noqa: PLC0415

    await store.open()
    try:
        existing = await store.get_many(SECURE_ROOTS)
        missing = [path for path in SECURE_ROOTS if path not in existing]
        if missing:
            print(f"Warning: The following secure root paths do not exist in ZooKeeper: {','.join(missing)}")
            print("That might be due to an incorrect chroot is specified when executing the command.")
            if checks_paths:
                print("Exit the command.")
                return None
            sys.stdout.flush()
        for path in missing:
            if path not in WITH_DATA:
                await create_node(store, path)
        trees = await asyncio.gather(*map(store.subtree, SECURE_ROOTS))
        paths = ["/", *{path: None for tree in trees for path in tree}]
        return sum(await asyncio.gather(*(store.set_rights(path, is_secure=is_secure) for path in paths)))
    finally:
        await store.close()


async def create_node(store: ZooKeeperStore, path: str) -> None:
    try:
        await store.multi([CreateNode(path)])
    except TransactionRefusedError:
        if await store.get(path) is None:  # created by a broker in the meantime
            raise
