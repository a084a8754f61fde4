"""`ottla migrate`: take over the log folders of Apache Kafka, and give them back.

`from-kafka` reads log folders that Kafka left (ZooKeeper or KRaft mode), copies the topics that it is told about, and
writes the metadata store that a broker starts with. The source is never written to, unless --in-place asks for it.
Folders of KRaft bring access rules, SCRAM users and quotas along; in ZooKeeper mode all that stands in ZooKeeper.
`to-zookeeper` prints the commands that make topics, rules, users and quotas known to a Kafka of ZooKeeper mode.
`to-cluster` moves the metadata of a broker that was alone into ZooKeeper, so that others can join it.
"""

from __future__ import annotations

import argparse
import os
import sys
from base64 import urlsafe_b64encode
from collections.abc import Sequence
from pathlib import Path
from uuid import uuid4

from ottla.cli.arguments import Parser, not_negative
from ottla.cli.meter import ByteMeter
from ottla.cli.migration import to_cluster as migrate_cluster
from ottla.cli.migration.plan import Choice, Plan, PlannedTopic, make_plan
from ottla.cli.tables import print_table
from ottla.cli.terminal import EXIT_FAILED, ToolError, UsageError, warn
from ottla.cli.topics.described_topics import DescribedTopic, parse_described
from ottla.controller.migration.adoption import NO_RIGHTS, AdoptedRights, AdoptedTopic, quota_decision, write_store
from ottla.controller.migration.kraft_log import KraftMetadata, read_kraft_log
from ottla.controller.migration.zookeeper_commands import NotForKafkaError, commands
from ottla.controller.stores.embedded import FILE_NAME as METADATA_FILE
from ottla.controller.stores.store import StoreError
from ottla.controller.tree import encode_uuid
from ottla.storage.adoption import ForeignFolder, look_at
from ottla.storage.arrival import Arrival
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
    parser = Parser(
        prog="ottla migrate",
        description="Take over log folders of Apache Kafka, give them back, or make one broker a cluster.",
        examples=EXAMPLES,
    )
    commands = parser.add_subparsers(title="commands", required=True, metavar="COMMAND", parser_class=Parser)
    taking = commands.add_parser("from-kafka", help="start on the log folders of a stopped Kafka")
    taking.add_argument("folders", nargs="+", metavar="FOLDER", help="its log.dirs (or copies of them)")
    place = taking.add_mutually_exclusive_group()
    place.add_argument("--data", metavar="DIR", help="copy to this new folder: the log.dirs of the broker to be")
    place.add_argument("--in-place", action="store_true", help="copy nothing: use FOLDER itself from now on")
    which = taking.add_mutually_exclusive_group()
    which.add_argument("--topics", metavar="A,B", help="the topics to take")
    which.add_argument("--all", action="store_true", help="all topics but internal ones")
    taking.add_argument("--internal", action="store_true", help="with --all: also __consumer_offsets and its like")
    taking.add_argument("--settings", metavar="FILE", help="what kafka-topics.sh --describe printed (- is stdin)")
    taking.add_argument(
        "--topic-config", action="append", default=[], metavar="TOPIC:KEY=VALUE", help="a setting; can be repeated"
    )
    taking.add_argument("--node-id", type=not_negative, metavar="N", help="default: that of meta.properties, or 1")
    taking.add_argument("--fill-missing", action="store_true", help="partitions that are not here come up empty")
    taking.add_argument("--link", action="store_true", help="hard links instead of copies for finished segments")
    taking.add_argument(
        "--without-rights", action="store_true", help="leave access rules, SCRAM users and quotas behind"
    )
    taking.add_argument("--dry-run", action="store_true", help="only show what would be done")
    taking.set_defaults(action=_take)
    giving = commands.add_parser("to-zookeeper", help="print zkCli commands that make the topics known to Kafka 3.9")
    giving.add_argument("data", metavar="DIR", help="log.dirs of a stopped ottla broker (the first, if several)")
    giving.set_defaults(action=_give)
    migrate_cluster.add_command(commands)
    return parser


# ---- taking


def _take(options: argparse.Namespace) -> int:
    folders: list[ForeignFolder] = []
    try:
        for path in options.folders:
            folders.append(look_at(path))  # noqa: PERF401 (those found so far are unlocked if one fails)
        return _take_from(folders, options)
    except (LogDirError, StoreError) as problem:
        raise ToolError(str(problem)) from None
    finally:
        for folder in folders:
            folder.unlock()


def _take_from(folders: list[ForeignFolder], options: argparse.Namespace) -> int:
    metadata = read_metadata_log(folders)
    plan = make_plan(folders, read_choice(metadata, options))
    rights = read_rights(metadata, options)
    show(plan, folders)
    if rights != NO_RIGHTS:
        warn(
            f"note: {shown_rights(rights)} come along; they count with authorizer.class.name and super.users as before"
        )
    if plan.problems:
        for problem in plan.problems:
            warn(f"ottla migrate: {problem}")
        return EXIT_FAILED
    if not (options.topics or options.all):
        if options.dry_run:
            return 0
        raise UsageError("choose what to take: --topics A,B or --all")
    if not plan.taken:
        raise ToolError("there is no topic to take")
    if options.dry_run:
        return 0
    if not (options.data or options.in_place):
        raise UsageError("say where to: --data DIR copies, --in-place uses the folder itself")
    owner = read_owner(folders, options)
    target = options.folders[0] if options.in_place else options.data
    check_target(target, is_in_place=options.in_place)
    arrival = Arrival(folders, None if options.in_place else options.data, *owner, links=options.link)
    if metadata is not None:
        arrival.producer_id_max = metadata.next_producer_id - 1
    bring(plan, arrival, rights)
    warnings = arrival.warnings
    for warning in warnings:
        warn(f"warning: {warning}")
    paths = ",".join(map(os.path.abspath, options.folders if options.in_place else [options.data]))
    print(f"took {counted(len(plan.taken), 'topic')}. Start the broker with:")
    print(f"  ottla broker --override broker.id={owner[0]} --override log.dirs={paths}")
    return 0


def read_choice(metadata: KraftMetadata | None, options: argparse.Namespace) -> Choice:
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
    return Choice(wanted, options.internal, options.fill_missing, described, configs)


def read_settings(path: str) -> dict[str, DescribedTopic]:
    text = sys.stdin.read(SETTINGS_BYTES_MAX) if path == "-" else Path(path).read_text(errors="replace")
    found = parse_described(text)
    if not found:
        raise ToolError(f"{path} says nothing about topics: it should be what kafka-topics.sh --describe prints")
    return found


def read_metadata_log(folders: list[ForeignFolder]) -> KraftMetadata | None:
    """KRaft keeps its metadata in a partition of its own, which every node has in one of its folders."""
    found = next((folder.metadata_log for folder in folders if folder.metadata_log is not None), None)
    return None if found is None else read_kraft_log(found)


def read_rights(metadata: KraftMetadata | None, options: argparse.Namespace) -> AdoptedRights:
    """A log of which something is not understood is not taken for less than it says."""
    if metadata is None or options.without_rights:
        return NO_RIGHTS
    if metadata.not_understood:
        some = "; ".join(metadata.not_understood[:3])
        raise ToolError(
            f"{len(metadata.not_understood)} records of the metadata log cannot be understood, access rules may be "
            f"among them ({some}). --without-rights takes the topics alone"
        )
    users = {name: config for name, config in metadata.users.items() if config}
    rights = AdoptedRights(metadata.acls, users, metadata.quotas, tuple(metadata.tokens.values()))
    refused = [result for result in quota_decision(rights).reply if result.error]
    if refused:
        raise ToolError(
            f"a quota cannot be kept: {refused[0].message} ({dict(refused[0].parts)}). Remove it while the old cluster "
            "runs, or --without-rights takes the topics alone"
        )
    return rights


def shown_rights(rights: AdoptedRights) -> str:
    rules = sum(map(len, rights.acls.values()))
    shown = [counted(rules, "access rule"), counted(len(rights.users), "SCRAM user")]
    shown += [counted(len(rights.quotas), "quota")] if rights.quotas else []
    shown += [counted(len(rights.tokens), "delegation token")] if rights.tokens else []
    return f"{', '.join(shown[:-1])} and {shown[-1]}"


def counted(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"


def describe_kraft(metadata: KraftMetadata) -> dict[str, DescribedTopic]:
    return {
        topic.name: DescribedTopic(encode_uuid(topic.topic_id), topic.partition_count, metadata.configs_of(topic.name))
        for topic in metadata.topics.values()
    }


def read_owner(folders: list[ForeignFolder], options: argparse.Namespace) -> tuple[int, str]:
    """Node id and cluster id; the folders must agree on them."""
    nodes = {folder.node_id for folder in folders if folder.node_id is not None}
    clusters = {folder.cluster_id for folder in folders if folder.cluster_id is not None}
    if len(clusters) > 1:
        raise ToolError(f"the folders belong to different clusters: {', '.join(sorted(clusters))}")
    if len(nodes) > 1 and options.node_id is None:
        named = ", ".join(map(str, sorted(nodes)))
        raise ToolError(f"the folders belong to brokers {named}: choose one with --node-id")
    node = options.node_id if options.node_id is not None else next(iter(nodes), NODE_ID_DEFAULT)
    if options.in_place and nodes - {node}:
        raise ToolError(f"the folder belongs to broker {nodes.pop()}: with --in-place it stays that broker's")
    new_cluster = urlsafe_b64encode(uuid4().bytes).decode().rstrip("=")
    return node, next(iter(clusters), new_cluster)


def check_target(target: str, *, is_in_place: bool) -> None:
    if is_in_place:
        if os.path.exists(os.path.join(target, METADATA_FILE)):
            raise ToolError(f"{target} has a {METADATA_FILE} already: it is a folder of ottla, just start the broker")
    elif os.path.exists(target) and (not os.path.isdir(target) or os.listdir(target)):
        raise ToolError(f"{target} is not an empty folder: choose a new one for --data")


def bring(plan: Plan, arrival: Arrival, rights: AdoptedRights) -> None:
    """Copy, read and write down everything; a failure leaves no half of it behind."""
    total_bytes = sum(topic.size_bytes for topic in plan.taken)
    label, rounds = ("reading", 1) if arrival.target is None else ("copying", 2)
    try:
        with ByteMeter(label, rounds * total_bytes) as meter:
            arrival.prepare()
            adopted = [adopt_topic(topic, arrival, meter) for topic in plan.taken]
        arrival.finish()
        write_store(
            arrival.store_directory,
            node_id=arrival.node_id,
            cluster_id=arrival.cluster_id,
            topics=adopted,
            producer_id_max=arrival.producer_id_max,
            rights=rights,
        )
    except BaseException:
        arrival.undo()
        raise


def adopt_topic(topic: PlannedTopic, arrival: Arrival, meter: ByteMeter) -> AdoptedTopic:
    epochs = []
    for index, log in enumerate(topic.logs):
        if log is None:
            arrival.make_empty(topic.name, index, topic.topic_id)
            epochs.append(-1)
        else:
            epochs.append(arrival.take(log, topic.topic_id, meter.add))
    return AdoptedTopic(topic.name, topic.topic_id, tuple(epochs), topic.configs)


# ---- showing


def show(plan: Plan, folders: list[ForeignFolder]) -> None:
    rows = []
    for topic in plan.topics:
        fate = "-" if not topic.is_wanted else "no" if topic.problem else "yes"
        count = sum(log is not None for log in topic.logs)
        partitions = str(count) if count == len(topic.logs) else f"{count} of {len(topic.logs)}"
        settings = ",".join(f"{key}={value}" for key, value in sorted(topic.configs.items()))
        rows.append((topic.name, partitions, shown_bytes(topic.size_bytes), fate, settings))
    print_table(("topic", "partitions", "size", "taken", "settings"), rows, ("partitions", "size"))
    for folder in folders:
        state = "was stopped in order" if folder.is_clean else "was killed: the first start checks its logs"
        warn(f"{folder.path}: broker {folder.node_id} of cluster {folder.cluster_id}, {state}")
        for warning in folder.warnings:
            warn(f"warning: {warning}")
    for note in plan.notes:
        warn(f"note: {note}")


def shown_bytes(count: int) -> str:
    size, units = float(count), ["B", "KiB", "MiB", "GiB"]
    while size >= 1024 and len(units) > 1:
        size /= 1024
        del units[0]
    return f"{size:.1f} {units[0]}" if units[0] != "B" else f"{count} B"


# ---- giving


def _give(options: argparse.Namespace) -> int:
    if not os.path.exists(os.path.join(options.data, METADATA_FILE)):
        raise ToolError(f"{options.data} has no {METADATA_FILE}: it is not the first log folder of an ottla broker")
    try:
        look_at(options.data).unlock()
        lines = commands(options.data)
    except (LogDirError, StoreError, NotForKafkaError) as problem:
        raise ToolError(str(problem)) from None
    for line in lines:
        print(line)
    return 0
