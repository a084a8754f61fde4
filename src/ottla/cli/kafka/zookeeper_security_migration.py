"""`zookeeper-security-migration.sh --zookeeper.acl=secure|unsecure`: give all nodes of a cluster Kafka's rights.

The steps of a move, without a stop: brokers log in at ZooKeeper (JAAS, or a certificate), then all are restarted with
zookeeper.set.acl=true, then this tool makes secure what was there before.

Unlike Kafka's it makes no missing node whose data count (/feature, /controller_epoch and the like): an empty one would
mean something else than none.
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
from ottla.security.jaas import FILE_PROPERTY, named_file
from ottla.security.zookeeper import ZooKeeperSecurity, ZooKeeperSecurityError, tool_security

if TYPE_CHECKING:
    from ottla.controller.stores.zookeeper.store import ZooKeeperStore

TOOL = "zookeeper-security-migration.sh"
SUMMARY = (
    "ZooKeeper Migration Tool Help. This tool updates the ACLs of znodes as part of the process of setting up "
    "ZooKeeper authentication."
)
WORDS = {"secure": True, "unsecure": False}
CONNECT = "localhost:2181"
TIMEOUT_MS = 30_000
TLS_FILE = "zk-tls-config-file"
OPTIONS = (
    Option("zookeeper.acl", "secure: nodes belong to who made them. unsecure: everybody may do everything.", "word"),
    Option("zookeeper.connect", f"ZooKeeper: host:port, commas between several, /chroot ({CONNECT}).", "address"),
    Option("zookeeper.session.timeout", f"Session time-out in ms ({TIMEOUT_MS}).", "ms"),
    Option("zookeeper.connection.timeout", f"How long to try to connect, in ms ({TIMEOUT_MS}).", "ms"),
    Option("enable.path.check", "End without a change unless all nodes of a cluster are there."),
    Option(TLS_FILE, "File with zookeeper.ssl.* for a ZooKeeper behind TLS.", "file"),
)
WITH_DATA = ("/controller", "/controller_epoch", "/feature", "/latest_producer_id_block", "/migration")


def run(arguments: Sequence[str]) -> int:
    options = KafkaOptions(TOOL, SUMMARY, OPTIONS, arguments)
    try:
        security = tool_security(os.environ, options.text(TLS_FILE))
    except ZooKeeperSecurityError as problem:
        raise ToolError(str(problem)) from None
    if not security.is_identified:
        return refuse_stranger()
    is_secure = WORDS.get(options.text("zookeeper.acl") or "")
    if is_secure is None:
        options.refuse(SUMMARY)
    security.sets_rights = is_secure
    store = open_store(options, security)
    try:
        changed = asyncio.run(migrate(store, is_secure=is_secure, checks_paths=options.has("enable.path.check")))
    except StoreError as problem:
        raise ToolError(str(problem)) from None
    if changed is None:
        return EXIT_FAILED
    warn(f"{TOOL}: {changed} nodes of {store.address} are {'secure' if is_secure else 'open to everybody'} now")
    return 0


def refuse_stranger() -> int:
    """Who has not logged in could only lock itself out."""
    path = named_file()
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


def open_store(options: KafkaOptions, security: ZooKeeperSecurity) -> ZooKeeperStore:
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
    """How many nodes have other rights now; None if it was ended before any had."""
    from ottla.controller.stores.zookeeper.access_rights import SECURE_ROOTS  # noqa: PLC0415

    await store.open()
    try:
        there = await store.get_many(SECURE_ROOTS)
        missing = [path for path in SECURE_ROOTS if path not in there]
        if missing:
            print(f"Warning: The following secure root paths do not exist in ZooKeeper: {','.join(missing)}")
            print("That might be due to an incorrect chroot is specified when executing the command.")
            if checks_paths:
                print("Exit the command.")
                return None
            sys.stdout.flush()
        for path in missing:
            if path not in WITH_DATA:
                await make(store, path)
        trees = await asyncio.gather(*map(store.subtree, SECURE_ROOTS))
        paths = ["/", *{path: None for tree in trees for path in tree}]
        return sum(await asyncio.gather(*(store.set_rights(path, is_secure=is_secure) for path in paths)))
    finally:
        await store.close()


async def make(store: ZooKeeperStore, path: str) -> None:
    try:
        await store.multi([CreateNode(path)])
    except TransactionRefusedError:
        if await store.get(path) is None:  # else a broker was faster
            raise
