"""`ottla migrate`: imports log directories of Apache Kafka, and hands them back.

`from-kafka` reads the log directories of a stopped Kafka (ZooKeeper or KRaft mode), copies the chosen topics, and
writes the metadata store of the new broker. The source is written only with --in-place. KRaft directories include ACLs,
SCRAM users and quotas; in ZooKeeper mode these are in ZooKeeper.
`to-zookeeper` prints the commands that register topics, ACLs, users and quotas for Kafka in ZooKeeper mode.
`to-cluster` moves the metadata of a single broker into ZooKeeper, so that others can join it.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import sys
from base64 import urlsafe_b64encode
from collections.abc import Sequence
from pathlib import Path
from uuid import uuid4

from ottla.base.text import format_count
from ottla.base.zookeeper_connect import parse_connect
from ottla.cli.arguments import Argument, Command, OneOf, Parser, flag, not_negative
from ottla.cli.migration.foreign_dirs import ForeignFolder, look_at
from ottla.cli.migration.import_plan import (
    DescribedTopic,
    ImportOptions,
    Plan,
    PlannedTopic,
    make_plan,
    parse_described,
)
from ottla.cli.migration.log_import import Arrival
from ottla.cli.progress_bar import ByteProgressBar
from ottla.cli.tables import print_table
from ottla.cli.terminal import EXIT_FAILED, ToolError, UsageError, warn
from ottla.controller.lost_metadata import LogDirState
from ottla.controller.migration.kraft_log import KraftMetadata, read_kraft_log
from ottla.controller.migration.store_import import NO_RIGHTS, ImportedRights, ImportedTopic, decide_quotas, write_store
from ottla.controller.migration.store_to_zookeeper import (
    MigrationRefusedError,
    MigrationResult,
    UnsupportedByKafkaError,
    export_commands,
    migrate,
    read_nodes,
    rename_migrated_store,
)
from ottla.controller.stores.embedded import FILE_NAME as METADATA_FILE
from ottla.controller.stores.store import Node, StoreError
from ottla.controller.tree import DamagedNodeError, encode_uuid
from ottla.operations.sizes import size_text
from ottla.storage.errors import LogDirError

NODE_ID_DEFAULT = 1
SETTINGS_BYTES_MAX = 64 << 20
EXAMPLES = """
ottla migrate from-kafka /var/kafka-logs --dry-run
ottla migrate from-kafka /var/kafka-logs --settings topics.txt --data /var/ottla --all
ottla migrate from-kafka /copy/of/kafka-logs --topics orders,clicks --in-place
ottla migrate to-zookeeper /var/ottla > commands.txt
ottla migrate to-cluster /var/ottla --zookeeper zoo1:2181,zoo2:2181,zoo3:2181/ottla
"""


def run(arguments: Sequence[str]) -> int:
    options = _parser().parse_args(arguments)
    code: int = options.action(options)
    return code


def _parser() -> Parser:
    return Parser(
        prog="ottla migrate",
        description="Import log directories of Apache Kafka, hand them back, or extend one broker to a cluster.",
        examples=EXAMPLES,
        commands=(
            Command(
                "from-kafka",
                "start on the log folders of a stopped Kafka",
                _from_kafka,
                Argument("folders", nargs="+", metavar="FOLDER", help="its log.dirs (or copies of them)"),
                OneOf(
                    Argument("--data", metavar="DIR", help="copy to this new folder: the log.dirs of the broker to be"),
                    flag("--in-place", help="copy nothing: use FOLDER itself from now on"),
                ),
                OneOf(
                    Argument("--topics", metavar="A,B", help="the topics to import"),
                    flag("--all", help="all topics except internal ones"),
                ),
                flag("--internal", help="with --all: also __consumer_offsets and its like"),
                Argument("--settings", metavar="FILE", help="the output of kafka-topics.sh --describe (- is stdin)"),
                Argument(
                    "--topic-config",
                    action="append",
                    default=[],
                    metavar="TOPIC:KEY=VALUE",
                    help="a setting; can be repeated",
                ),
                Argument("--node-id", type=not_negative, metavar="N", help="default: that of meta.properties, or 1"),
                flag("--fill-missing", help="create missing partitions empty"),
                flag("--link", help="hard links instead of copies for finished segments"),
                flag("--without-rights", help="do not import ACLs, SCRAM users and quotas"),
                flag("--dry-run", help="only print the plan"),
            ),
            Command(
                "to-zookeeper",
                "print zkCli commands that register the topics for Kafka 3.9",
                _to_zookeeper,
                Argument("data", metavar="DIR", help="log.dirs of a stopped ottla broker (the first, if several)"),
            ),
            Command(
                "to-cluster",
                "move a broker's metadata into ZooKeeper, so that others can join",
                _to_cluster,
                Argument("data", metavar="DIR", help="log.dirs of a stopped ottla broker (the first, if several)"),
                Argument(
                    "--zookeeper",
                    required=True,
                    metavar="CONNECT",
                    help="HOST:PORT[,HOST:PORT ...][/chroot], without topics",
                ),
            ),
        ),
    )


# ---- from-kafka


def _from_kafka(options: argparse.Namespace) -> int:
    folders: list[ForeignFolder] = []
    try:
        for path in options.folders:
            folders.append(look_at(path))  # noqa: PERF401 (folders found so far are unlocked if one fails)
        return _import_folders(folders, options)
    except (LogDirError, StoreError) as problem:
        raise ToolError(str(problem)) from None
    finally:
        for folder in folders:
            folder.unlock()


def _import_folders(folders: list[ForeignFolder], options: argparse.Namespace) -> int:
    metadata = read_metadata_log(folders)
    plan = make_plan(folders, read_import_options(metadata, options))
    rights = read_rights(metadata, options)
    print_plan(plan, folders)
    if rights != NO_RIGHTS:
        warn(f"note: {rights_summary(rights)} are imported; they need authorizer.class.name and super.users as before")
    if plan.problems:
        for problem in plan.problems:
            warn(f"ottla migrate: {problem}")
        return EXIT_FAILED
    if not (options.topics or options.all):
        if options.dry_run:
            return 0
        raise UsageError("choose the topics: --topics A,B or --all")
    if not plan.taken:
        raise ToolError("there is no topic to import")
    if options.dry_run:
        return 0
    if not (options.data or options.in_place):
        raise UsageError("choose the destination: --data DIR copies, --in-place uses the folder itself")
    owner = read_owner(folders, options)
    target = options.folders[0] if options.in_place else options.data
    check_target(target, is_in_place=options.in_place)
    arrival = Arrival(folders, None if options.in_place else options.data, *owner, links=options.link)
    if metadata is not None:
        arrival.producer_id_max = metadata.next_producer_id - 1
    import_topics(plan, arrival, rights)
    warnings = arrival.warnings
    for warning in warnings:
        warn(f"warning: {warning}")
    paths = ",".join(map(os.path.abspath, options.folders if options.in_place else [options.data]))
    print(f"imported {format_count(len(plan.taken), 'topic')}. Start the broker with:")
    print(f"  ottla broker --override broker.id={owner[0]} --override log.dirs={paths}")
    return 0


def read_import_options(metadata: KraftMetadata | None, options: argparse.Namespace) -> ImportOptions:
    configs: dict[str, dict[str, str]] = {}
    for text in options.topic_config:
        topic, colon, pair = text.partition(":")
        key, equals, value = pair.partition("=")
        if not (topic and colon and key and equals):
            raise UsageError(f"{text!r} is not of the form TOPIC:KEY=VALUE")
        configs.setdefault(topic, {})[key] = value
    wanted = frozenset(name for name in (options.topics or "").split(",") if name)
    described: dict[str, DescribedTopic] = {}
    if options.settings:
        described = read_settings(options.settings)
    elif metadata is not None:
        described = describe_kraft(metadata)
    return ImportOptions(wanted, options.internal, options.fill_missing, described, configs)


def read_settings(path: str) -> dict[str, DescribedTopic]:
    text = sys.stdin.read(SETTINGS_BYTES_MAX) if path == "-" else Path(path).read_text(errors="replace")
    found = parse_described(text)
    if not found:
        raise ToolError(f"{path} describes no topics: it should be the output of kafka-topics.sh --describe")
    return found


def read_metadata_log(folders: list[ForeignFolder]) -> KraftMetadata | None:
    """Read the KRaft metadata log, which every node stores as a partition in one of its directories."""
    found = next((folder.metadata_log for folder in folders if folder.metadata_log is not None), None)
    return None if found is None else read_kraft_log(found)


def read_rights(metadata: KraftMetadata | None, options: argparse.Namespace) -> ImportedRights:
    """Read ACLs, users and quotas. An incompletely understood log is rejected: missing ACLs would change access."""
    if metadata is None or options.without_rights:
        return NO_RIGHTS
    if metadata.unreadable_records:
        some = "; ".join(metadata.unreadable_records[:3])
        raise ToolError(
            f"{len(metadata.unreadable_records)} records of the metadata log cannot be understood, access rules may be "
            f"among them ({some}). --without-rights imports the topics alone"
        )
    users = {name: config for name, config in metadata.users.items() if config}
    rights = ImportedRights(metadata.acls, users, metadata.quotas, tuple(metadata.tokens.values()))
    refused = [result for result in decide_quotas(rights).reply if result.error]
    if refused:
        raise ToolError(
            f"a quota cannot be kept: {refused[0].message} ({dict(refused[0].parts)}). Remove it while the old cluster "
            "runs, or use --without-rights to import the topics alone"
        )
    return rights


def rights_summary(rights: ImportedRights) -> str:
    rules = sum(map(len, rights.acls.values()))
    shown = [format_count(rules, "access rule"), format_count(len(rights.users), "SCRAM user")]
    shown += [format_count(len(rights.quotas), "quota")] if rights.quotas else []
    shown += [format_count(len(rights.tokens), "delegation token")] if rights.tokens else []
    return f"{', '.join(shown[:-1])} and {shown[-1]}"


def describe_kraft(metadata: KraftMetadata) -> dict[str, DescribedTopic]:
    return {
        topic.name: DescribedTopic(encode_uuid(topic.topic_id), topic.partition_count, metadata.configs_of(topic.name))
        for topic in metadata.topics.values()
    }


def read_owner(folders: list[ForeignFolder], options: argparse.Namespace) -> tuple[int, str]:
    """Node id and cluster id; the directories must agree on them."""
    nodes = {folder.node_id for folder in folders if folder.node_id is not None}
    clusters = {folder.cluster_id for folder in folders if folder.cluster_id is not None}
    if len(clusters) > 1:
        raise ToolError(f"the folders belong to different clusters: {', '.join(sorted(clusters))}")
    if len(nodes) > 1 and options.node_id is None:
        named = ", ".join(map(str, sorted(nodes)))
        raise ToolError(f"the folders belong to brokers {named}: choose one with --node-id")
    node = options.node_id if options.node_id is not None else next(iter(nodes), NODE_ID_DEFAULT)
    if options.in_place and nodes - {node}:
        raise ToolError(f"the folder belongs to broker {nodes.pop()}: with --in-place it keeps that id")
    new_cluster = urlsafe_b64encode(uuid4().bytes).decode().rstrip("=")
    return node, next(iter(clusters), new_cluster)


def check_target(target: str, *, is_in_place: bool) -> None:
    if is_in_place:
        if os.path.exists(os.path.join(target, METADATA_FILE)):
            raise ToolError(
                f"{target} already has a {METADATA_FILE}: it is a folder of ottla, so just start the broker"
            )
    elif os.path.exists(target) and (not os.path.isdir(target) or os.listdir(target)):
        raise ToolError(f"{target} is not an empty folder: choose a new one for --data")


def import_topics(plan: Plan, arrival: Arrival, rights: ImportedRights) -> None:
    """Copy and verify the logs and write the metadata; a failure leaves nothing behind."""
    total_bytes = sum(topic.size_bytes for topic in plan.taken)
    label, rounds = ("reading", 1) if arrival.target is None else ("copying", 2)
    try:
        with ByteProgressBar(label, rounds * total_bytes) as meter:
            arrival.prepare()
            adopted = [adopt_topic(topic, arrival, meter) for topic in plan.taken]
        arrival.finish()
        transaction = write_store(
            arrival.store_directory,
            node_id=arrival.node_id,
            cluster_id=arrival.cluster_id,
            topics=adopted,
            producer_id_max=arrival.producer_id_max,
            rights=rights,
        )
        arrival.record_transaction(transaction)
    except BaseException:
        arrival.undo()
        raise


def adopt_topic(topic: PlannedTopic, arrival: Arrival, meter: ByteProgressBar) -> ImportedTopic:
    epochs = []
    for index, log in enumerate(topic.logs):
        if log is None:
            arrival.make_empty(topic.name, index, topic.topic_id)
            epochs.append(-1)
        else:
            epochs.append(arrival.take(log, topic.topic_id, meter.add))
    return ImportedTopic(topic.name, topic.topic_id, tuple(epochs), topic.configs)


# ---- printing the plan


def print_plan(plan: Plan, folders: list[ForeignFolder]) -> None:
    rows = []
    for topic in plan.topics:
        fate = "-" if not topic.is_selected else "no" if topic.problem else "yes"
        count = sum(log is not None for log in topic.logs)
        partitions = str(count) if count == len(topic.logs) else f"{count} of {len(topic.logs)}"
        settings = ",".join(f"{key}={value}" for key, value in sorted(topic.configs.items()))
        rows.append((topic.name, partitions, size_text(topic.size_bytes), fate, settings))
    print_table(("topic", "partitions", "size", "taken", "settings"), rows, ("partitions", "size"))
    for folder in folders:
        state = "was stopped in order" if folder.is_clean else "was killed: the first start checks its logs"
        warn(f"{folder.path}: broker {folder.node_id} of cluster {folder.cluster_id}, {state}")
        for warning in folder.warnings:
            warn(f"warning: {warning}")
    for note in plan.notes:
        warn(f"note: {note}")


# ---- to-zookeeper


def _to_zookeeper(options: argparse.Namespace) -> int:
    if not os.path.exists(os.path.join(options.data, METADATA_FILE)):
        raise ToolError(f"{options.data} has no {METADATA_FILE}: it is not the first log directory of an ottla broker")
    try:
        folder = look_at(options.data)
        folder.unlock()
        lines = export_commands(options.data, [log_folder_of(folder)])
    except (LogDirError, StoreError, UnsupportedByKafkaError) as problem:
        raise ToolError(str(problem)) from None
    for line in lines:
        print(line)
    return 0


# ---- to-cluster: a single broker becomes the first of a cluster
RESERVED_MAX = 1000  # default of reserved.broker.max.id


def _to_cluster(options: argparse.Namespace) -> int:
    try:
        address = parse_connect(options.zookeeper)
    except ValueError as problem:
        raise UsageError(f"--zookeeper: {problem}") from None
    if not os.path.exists(os.path.join(options.data, METADATA_FILE)):
        raise ToolError(f"{options.data} has no {METADATA_FILE}: it is not the first log directory of an ottla broker")
    try:
        folder = look_at(options.data)
        try:
            moved = asyncio.run(_move(read_nodes(options.data, [log_folder_of(folder)]), str(address)))
            backup = rename_migrated_store(options.data)
        finally:
            folder.unlock()
    except (LogDirError, StoreError, MigrationRefusedError, DamagedNodeError) as problem:
        raise ToolError(str(problem)) from None
    _print_migrated(moved, str(address), backup, folder.node_id)
    return 0


def log_folder_of(folder: ForeignFolder) -> LogDirState:
    return LogDirState(folder.path, folder.transaction, [log.partition for log in folder.logs])


def _print_migrated(moved: MigrationResult, connect: str, backup: str, node_id: int | None) -> None:
    print(
        f"moved {moved.topics} topics with {moved.partitions} partitions of cluster {moved.cluster_id} to {connect}; "
        f"the old store is kept as {backup}"
    )
    print("Start the broker as before, with these additional settings (and without process.roles, controller.*):")
    print(f"  broker.id={1 if node_id is None else node_id}")
    print(f"  zookeeper.connect={connect}")
    if node_id is not None and node_id > RESERVED_MAX:
        print(f"  reserved.broker.max.id={node_id}")


async def _move(source: dict[str, Node], connect: str) -> MigrationResult:
    from ottla.controller.stores.zookeeper.store import ZooKeeperStore  # noqa: PLC0415 (kazoo is slow to load)

    store = ZooKeeperStore(connect)
    await store.open()
    try:
        return await migrate(source, store)
    finally:
        await store.close()
