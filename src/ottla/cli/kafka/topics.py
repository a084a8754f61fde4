"""`kafka-topics.sh` with Kafka's options, wording and exit codes."""

from __future__ import annotations

from collections.abc import Sequence

from ottla.base.errors import Error
from ottla.base.names import INTERNAL_TOPICS, parse_id
from ottla.cli.client_settings import command_properties, make_client
from ottla.cli.java.errors import java_sentence
from ottla.cli.java.options import (
    BOOTSTRAP,
    BROKER_LIST,
    COMMAND_CONFIG,
    ZOOKEEPER,
    KafkaOptions,
    Option,
    OptionError,
    bootstrap_of,
    is_legacy_zookeeper,
    topic_pattern,
)
from ottla.cli.reports.topic_report import DescribeFilter, describe_lines, kafka_order, legacy_line
from ottla.cli.terminal import EXIT_FAILED, ToolError, fail, print_line, print_text, warn
from ottla.client.admin import CLUSTER_DEFAULT, PARTITIONS_PER_ANSWER, Admin, Topic
from ottla.client.errors import ClientError
from ottla.client.reassignments import reassignments_of

TOOL = "kafka-topics.sh"
SUMMARY = "Create, list, describe, grow and delete topics."
EXAMPLE = "--create --topic orders --partitions 3"
ACTIONS = ("create", "list", "alter", "describe", "delete")
REPORTS = ("under-replicated-partitions", "under-min-isr-partitions", "at-min-isr-partitions", "unavailable-partitions")
REPLICATION_FACTOR_MAX = 32767
METRIC_NAMES_WARNING = (
    "WARNING: Due to limitations in metric names, topics with a period ('.') or underscore ('_') could collide. "
    "To avoid issues it is best to use either, but not both."
)
OLD_ALTER_WARNING = (
    "WARNING: If partitions are increased for a topic that has a key, "
    "the partition logic or ordering of the messages will be affected"
)
ALTER_CONFIG_HINT = " (To alter topic configurations, the kafka-configs tool can be used.)"

OPTIONS = (
    BOOTSTRAP,
    BROKER_LIST,
    ZOOKEEPER,
    COMMAND_CONFIG,
    Option("create", "Create the topic."),
    Option("list", "List topics."),
    Option("describe", "Show topics with their partitions."),
    Option("alter", "Add partitions to topics."),
    Option("delete", "Delete topics."),
    Option("topic", "Name of the topic; for all but --create also a regular expression.", "name"),
    Option("topic-id", "With --describe: id of the topic.", "id"),
    Option("partitions", "Number of partitions; the cluster's default if not given.", "number"),
    Option("replication-factor", "Copies of each partition; the cluster's default if not given.", "number"),
    Option("replica-assignment", "Brokers of each partition, such as 1:2,2:3 for two partitions.", "brokers"),
    Option("config", "A setting of the new topic; may be repeated.", "name=value", is_repeatable=True),
    Option("delete-config", "No longer supported: use the configs tool.", "name", is_repeatable=True),
    Option("if-exists", "With --alter, --delete and --describe: no error if the topic is missing."),
    Option("if-not-exists", "With --create: no error if the topic exists."),
    Option("exclude-internal", "Leave out the cluster's own topics."),
    Option("under-replicated-partitions", "With --describe: only partitions with replicas that are not in sync."),
    Option("unavailable-partitions", "With --describe: only partitions without a live leader."),
    Option("under-min-isr-partitions", "With --describe: only partitions below min.insync.replicas."),
    Option("at-min-isr-partitions", "With --describe: only partitions exactly at min.insync.replicas."),
    Option("topics-with-overrides", "With --describe: only topics with settings of their own."),
    Option("partition-size-limit-per-response", "With --describe: partitions per answer of the broker.", "number"),
)


def run(arguments: Sequence[str]) -> int:
    """Run the tool."""
    options = KafkaOptions(TOOL, SUMMARY, OPTIONS, arguments, example=EXAMPLE)
    try:
        bootstrap = check_options(options, bool(arguments))
        properties = command_properties(options.text("command-config"))
    except OptionError as problem:
        return _failed(problem)
    except ToolError as problem:
        return fail(TOOL, str(problem))
    try:
        with make_client(bootstrap, properties, "adminclient-1") as client:
            action = next(action for action in ACTIONS if options.has(action))
            return _ACTIONS[action](Admin(client), options)
    except (ClientError, ToolError) as problem:
        return _failed(problem)


def check_options(options: KafkaOptions, is_any: bool) -> str:
    """Reject what Kafka rejects, in the same order; returns the bootstrap servers."""
    if not is_any:
        options.print_usage_and_exit(SUMMARY)
    if sum(options.has(action) for action in ACTIONS) != 1:
        options.print_usage_and_exit(
            "Command must include exactly one action: --list, --describe, --create, --alter or --delete"
        )
    bootstrap = bootstrap_of(options)
    if bootstrap is None:
        options.print_usage_and_exit("--bootstrap-server must be specified")
    _check_required(options)
    _check_combinations(options)
    if options.has("delete-config"):
        warn(
            "delete-config option is no longer supported and deprecated since version 4.0. "
            "The config will be fully removed in future releases."
        )
    return bootstrap


def _check_required(options: KafkaOptions) -> None:
    if options.has("describe") and options.has("if-exists") and not (options.has("topic") or options.has("topic-id")):
        options.print_usage_and_exit("--topic or --topic-id is required to describe a topic")
    if options.has("create") or options.has("delete"):
        options.check_required_args("topic")
    if options.has("alter"):
        if options.has("config"):
            options.print_usage_and_exit(
                'Option combination "[[config], [bootstrap-server]]" can\'t be used with option "[alter]"'
                + ALTER_CONFIG_HINT
            )
        options.check_required_args("topic", "partitions")


# Option -> the actions that accept it, in the order of Kafka's checks.
_GOES_WITH = {
    "config": ("alter", "create"),
    "partitions": ("alter", "create"),
    "replication-factor": ("create",),
    "replica-assignment": ("alter", "create"),
    **dict.fromkeys((*REPORTS, "topics-with-overrides"), ("describe",)),
    "if-exists": ("alter", "delete", "describe"),
    "if-not-exists": ("create",),
    "exclude-internal": ("list", "describe"),
}


def _check_combinations(options: KafkaOptions) -> None:
    for name, fitting in _GOES_WITH.items():
        options.check_invalid_args(name, *(action for action in ACTIONS if action not in fitting))
        if name == "replica-assignment" and options.has("create"):
            options.check_invalid_args(name, "partitions", "replication-factor")
        if name in REPORTS:
            options.check_invalid_args(name, "topics-with-overrides")


def _create(admin: Admin, options: KafkaOptions) -> int:
    name = options.text("topic") or ""
    assignment = parse_assignment(options.text("replica-assignment"))
    configs = parse_configs(options.texts("config"))
    partitions = options.number("partitions")
    replication_factor = options.number("replication-factor")
    if "." in name or "_" in name:
        print(METRIC_NAMES_WARNING)
    if replication_factor is not None and not 0 < replication_factor <= REPLICATION_FACTOR_MAX:
        raise OptionError("The replication factor must be between 1 and 32767 inclusive")
    if partitions is not None and partitions < 1:
        raise OptionError("The partitions must be greater than 0")
    if not name:
        raise OptionError("The given topic name '' cannot be represented in a request.")
    try:
        admin.create_topic(
            name,
            partitions=CLUSTER_DEFAULT if partitions is None else partitions,
            replication_factor=CLUSTER_DEFAULT if replication_factor is None else replication_factor,
            assignment=assignment,
            configs=configs,
        )
    except ClientError as problem:
        if problem.error is not Error.TOPIC_ALREADY_EXISTS or not options.has("if-not-exists"):
            raise
        return 0
    print(f'Created topic "{name}".' if is_legacy_zookeeper(options) else f"Created topic {name}.")
    return 0


def _list(admin: Admin, options: KafkaOptions) -> int:
    marked = _marked(options)
    names = [topic.name for topic in _matching(admin, options)]
    print("\n".join(f"{name} - marked for deletion" if name in marked else name for name in names))
    return 0


def _marked(options: KafkaOptions) -> frozenset[str]:
    """Topics marked for deletion in ZooKeeper, for scripts that use --zookeeper."""
    if not is_legacy_zookeeper(options):
        return frozenset()
    from ottla.cli.zookeeper.znodes import marked_topics  # noqa: PLC0415 (only old scripts need it)

    return marked_topics(options.text("zookeeper") or "")


def _alter(admin: Admin, options: KafkaOptions) -> int:
    topics = _existing(admin, options)
    count = options.number("partitions") or 0
    assignment = parse_assignment(options.text("replica-assignment"))
    for topic in topics:
        new = None
        if assignment is not None:  # lists all partitions of the grown topic: existing ones stay
            new = [brokers for number, brokers in assignment.items() if number >= len(topic.partitions)]
        if is_legacy_zookeeper(options):
            print(OLD_ALTER_WARNING)
        admin.create_partitions(topic.name, count, new)
        if is_legacy_zookeeper(options):
            print("Adding partitions succeeded!")
    return 0


def _describe(admin: Admin, options: KafkaOptions) -> int:
    if options.has("topic-id"):
        topics = _of_id(admin, options)
    else:
        limit = options.number("partition-size-limit-per-response") or PARTITIONS_PER_ANSWER
        names = [topic.name for topic in _existing(admin, options)]
        topics = admin.describe(names, limit) if names else []
    wanted = DescribeFilter(
        under_replicated=options.has("under-replicated-partitions"),
        unavailable=options.has("unavailable-partitions"),
        under_min_isr=options.has("under-min-isr-partitions"),
        at_min_isr=options.has("at-min-isr-partitions"),
        only_overrides=options.has("topics-with-overrides"),
    )
    configs = admin.topic_configs(topic.name for topic in topics)
    moves = reassignments_of(admin.client, topics)
    marked = _marked(options)
    for line in describe_lines(kafka_order(topics), configs, admin.live_brokers(), wanted, moves):
        print_line(legacy_line(line, marked, wanted) if is_legacy_zookeeper(options) else line)
    return 0


def _delete(admin: Admin, options: KafkaOptions) -> int:
    topics = _existing(admin, options)
    if topics and is_legacy_zookeeper(options):
        return _mark(admin, options.text("zookeeper") or "", topics)
    if topics:
        admin.delete_topics([topic.name for topic in topics])
    return 0


def _mark(admin: Admin, zookeeper: str, topics: Sequence[Topic]) -> int:
    """Delete topics with the output of a script that uses --zookeeper.

    If the cluster does not delete topics, they are marked in ZooKeeper, which is not an error. Without ZooKeeper the
    cluster's refusal is reported.
    """
    from ottla.cli.zookeeper.znodes import is_zookeeper_reachable, mark_topic_for_deletion  # noqa: PLC0415 (only old scripts need it)

    for name in [topic.name for topic in topics]:
        if name in INTERNAL_TOPICS:
            raise OptionError(f"Topic {name} is a kafka internal topic and is not allowed to be marked for deletion.")
        try:
            admin.delete_topics([name])
        except ClientError as problem:
            if problem.error is not Error.TOPIC_DELETION_DISABLED or not is_zookeeper_reachable(zookeeper):
                raise
            if not mark_topic_for_deletion(zookeeper, name):
                print(f"Topic {name} is already marked for deletion.")
                continue
        print(f"Topic {name} is marked for deletion.")
        print("Note: This will have no impact if delete.topic.enable is not set to true.")
    return 0


_ACTIONS = {"create": _create, "list": _list, "alter": _alter, "describe": _describe, "delete": _delete}


def _existing(admin: Admin, options: KafkaOptions) -> list[Topic]:
    """The topics that match --topic; no match is an error unless --if-exists is given."""
    topics = _matching(admin, options)
    name = options.text("topic")
    if not topics and name is not None and not options.has("if-exists"):
        raise OptionError(f"Topic '{name}' does not exist as expected")
    return topics


def _matching(admin: Admin, options: KafkaOptions) -> list[Topic]:
    pattern = options.text("topic")
    topics = admin.topics()
    if options.has("exclude-internal"):
        topics = [topic for topic in topics if not (topic.is_internal or topic.name in INTERNAL_TOPICS)]
    if pattern is None:
        return topics
    is_wanted = topic_pattern(pattern)
    return [topic for topic in topics if is_wanted.fullmatch(topic.name)]


def _of_id(admin: Admin, options: KafkaOptions) -> list[Topic]:
    text = options.text("topic-id") or ""
    try:
        topics = admin.topics_by_id([parse_id(text)])
    except ValueError as problem:
        raise OptionError(str(problem)) from None
    if not topics and not options.has("if-exists"):
        raise OptionError(f"TopicId '{text}' does not exist as expected")
    return topics


def parse_assignment(text: str | None) -> dict[int, list[int]] | None:
    """`1:2,2:3`: partition 0 on brokers 1 and 2, partition 1 on brokers 2 and 3."""
    if not text:
        return None
    assignment: dict[int, list[int]] = {}
    for number, part in enumerate(text.rstrip(",").split(",") if text.strip(",") else ()):
        brokers = [_broker_id(item) for item in part.split(":")]
        doubles = sorted({broker for broker in brokers if brokers.count(broker) > 1})
        if doubles:
            raise OptionError(
                f"Partition replica lists may not contain duplicate entries: {','.join(map(str, doubles))}"
            )
        assignment[number] = brokers
        if len(brokers) != len(assignment[0]):
            raise OptionError(f"Partition {number} has different replication factor: {brokers}")
    return assignment


def _broker_id(text: str) -> int:
    try:
        return int(text.strip())
    except ValueError:
        raise OptionError(f'For input string: "{text.strip()}"') from None


def parse_configs(pairs: Sequence[str]) -> dict[str, str]:
    configs = {}
    for pair in pairs:
        key, is_pair, value = pair.partition("=")
        if not is_pair:
            raise OptionError(
                'requirement failed: Invalid topic config: all configs to be added must be in the format "key=val".'
            )
        configs[key.strip()] = value.strip()
    return configs


def _failed(problem: Exception) -> int:
    text = java_sentence(problem) if isinstance(problem, ClientError) else problem
    print_text(f"Error while executing topic command : {text}")
    return EXIT_FAILED
