"""`kafka-reassign-partitions.sh`: generate, execute, verify and cancel partition reassignments."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from random import SystemRandom

from ottla.base.errors import KafkaError
from ottla.base.names import TopicPartition
from ottla.cli.client_settings import client_of_file
from ottla.cli.java.errors import java_sentence, java_text
from ottla.cli.java.options import BOOTSTRAP, COMMAND_CONFIG, LONG_MAX, KafkaOptions, Option
from ottla.cli.terminal import EXIT_FAILED, ToolError, print_line, print_text
from ottla.client.admin import Admin
from ottla.client.client import Client
from ottla.client.cluster import describe_cluster
from ottla.client.errors import BrokerError, ClientError
from ottla.client.log_dirs import TopicPartitionReplica
from ottla.client.reassignments import Reassignment, alter_reassignments, list_reassignments
from ottla.operations.errors import OperationError
from ottla.operations.reassignment.generated_plans import make_plan
from ottla.operations.reassignment.moves import (
    LogDirState,
    ReassignmentState,
    check_brokers,
    current_log_dirs,
    current_replicas,
    find_topics,
    log_dir_states,
    move_log_dirs,
    progress,
    replicas_of,
)
from ottla.operations.reassignment.plan import Plan, check_plan, parse_brokers, parse_plan, parse_topics, plan_text
from ottla.operations.reassignment.throttles import (
    clear_broker_throttles,
    clear_topic_throttles,
    set_log_dir_throttle,
    set_throttles,
    throttle_settings,
    throttled_brokers,
)

TOOL = "kafka-reassign-partitions.sh"
SUMMARY = "This tool helps to move topic partitions between replicas."
EXAMPLE = "--execute --reassignment-json-file plan.json"
ACTIONS = ("generate", "execute", "verify", "cancel", "list")
SERVER, CONTROLLER, CONFIG, PLAN = (
    "bootstrap-server",
    "bootstrap-controller",
    "command-config",
    "reassignment-json-file",
)
TOPICS, BROKERS = "topics-to-move-json-file", "broker-list"
TIMEOUT_MS = 10_000
NO_THROTTLE = -1

OPTIONS = (
    BOOTSTRAP,
    COMMAND_CONFIG,
    Option(CONTROLLER, "Controllers to connect to, instead of brokers; for --list and --cancel.", "servers"),
    Option("generate", "Print a plan for the topics in a file."),
    Option("execute", "Carry out a plan."),
    Option("verify", "Show the progress of a plan; remove the throttles when it is complete."),
    Option("cancel", "Cancel the active moves of a plan."),
    Option("list", "List all active moves."),
    Option(PLAN, 'The plan: {"version":1,"partitions":[{"topic":"t","partition":0,"replicas":[1,2]}]}.', "file"),
    Option(TOPICS, 'With --generate: {"version":1,"topics":[{"topic":"orders"}]}.', "file"),
    Option(BROKERS, "With --generate: the brokers for the topics, such as 1,2,3.", "brokers"),
    Option("disable-rack-aware", "With --generate: ignore the racks of brokers."),
    Option("throttle", "With --execute: most bytes a second that each broker copies for moves.", "number"),
    Option("replica-alter-log-dirs-throttle", "With --execute: the same for moves between folders.", "number"),
    Option("timeout", "With --execute: milliseconds to wait until moves between directories start (10000).", "number"),
    Option("additional", "With --execute: allow it during other moves; also changes the throttle."),
    Option("preserve-throttles", "With --verify and --cancel: keep the throttles."),
    Option("disallow-replication-factor-change", "With --execute: reject plans that change the number of replicas."),
)
# Action -> required options; below, optional ones.
NEEDED = {"generate": (TOPICS, BROKERS), "execute": (PLAN,), "verify": (PLAN,), "cancel": (PLAN,), "list": ()}
ALLOWED = {
    "generate": ("disable-rack-aware",),
    "execute": (
        *("additional", "throttle", "replica-alter-log-dirs-throttle", "timeout"),
        "disallow-replication-factor-change",
    ),
    "verify": ("preserve-throttles",),
    "cancel": ("preserve-throttles", "timeout"),
    "list": (),
}
EXISTING_REASSIGNMENT = (
    "Cannot execute because there is an existing partition assignment.  Use --additional to override this and create a "
    "new partition assignment in addition to the existing one. The --additional flag can also be used to change the "
    "throttle by resubmitting the current reassignment."
)
VERIFY_LATER = (
    "Warning: You must run --verify periodically, until the reassignment completes, to ensure the throttle is removed."
)


class TerseError(ToolError):
    """A failure that Kafka prints without the prefix Error (TerseException)."""


def run(arguments: Sequence[str]) -> int:
    options = KafkaOptions(
        TOOL, SUMMARY, OPTIONS, arguments, example=EXAMPLE, unreadable="joptsimple.UnrecognizedOptionException: "
    )
    action = check_options(options, bool(arguments))
    bootstrap = options.text(SERVER) or options.text(CONTROLLER) or ""
    try:
        with client_of_file(bootstrap, options.text(CONFIG), "reassign-partitions-tool") as client:
            _ACTIONS[action](client, options)
    except TerseError as problem:
        return _failed(str(problem))
    except FileNotFoundError as problem:
        return _failed(f"Error: Unable to read file {problem.filename}")
    except KafkaError as problem:
        return _failed(f"Error: {problem.message}")
    except ClientError as problem:
        return _failed(f"Error: {java_text(problem)}")
    except OperationError as problem:
        return _failed(f"Error: {problem}")
    return 0


def check_options(options: KafkaOptions, is_any: bool) -> str:
    """Reject what Kafka rejects, in the same order; returns the action."""
    if not is_any:
        options.print_usage_and_exit(SUMMARY)
    chosen = [action for action in ACTIONS if options.has(action)]
    if len(chosen) != 1:
        actions = ", ".join(f"--{action}" for action in ACTIONS)
        options.print_usage_and_exit(f"Command must include exactly one action: {actions}")
    if options.has(SERVER) and options.has(CONTROLLER):
        options.print_usage_and_exit("Please don't specify both --bootstrap-server and --bootstrap-controller")
    if not options.has(SERVER) and not options.has(CONTROLLER):
        options.print_usage_and_exit("Please specify either --bootstrap-server or --bootstrap-controller")
    (action,) = chosen
    options.check_required_args(*NEEDED[action])
    servers = (SERVER, CONTROLLER) if action in ("list", "cancel") else (SERVER,)
    fitting = {action, CONFIG, *servers, *NEEDED[action], *ALLOWED[action]}
    for name in options.order:
        if name not in fitting:
            options.print_usage_and_exit(f'Option "[{name}]" can\'t be used with action "[{action}]"')
    return action


def _failed(text: str) -> int:
    print_text(text)
    return EXIT_FAILED


# ---- actions


def _generate(client: Client, options: KafkaOptions) -> None:
    text = _read(options, TOPICS)
    brokers = parse_brokers(options.text(BROKERS) or "")
    topics = find_topics(Admin(client), parse_topics(text))
    cluster = describe_cluster(client)
    with_racks = not options.has("disable-rack-aware")
    racks = {broker.broker_id: broker.rack if with_racks else None for broker in cluster.brokers}
    rows = replicas_of(topics)
    proposed = make_plan(topics, [broker for broker in brokers if broker in racks], racks, SystemRandom())
    print("Current partition replica assignment")
    print_line(plan_text(rows, current_log_dirs(client, rows)))
    print("\nProposed partition reassignment configuration")
    print_line(plan_text(proposed, {}))


def _execute(client: Client, options: KafkaOptions) -> None:
    plan = parse_plan(_read(options, PLAN))
    check_plan(plan)
    rate = _number(options, "throttle", NO_THROTTLE)
    folder_rate = _number(options, "replica-alter-log-dirs-throttle", NO_THROTTLE)
    under_way = list_reassignments(client)
    if under_way and not options.has("additional"):
        raise TerseError(EXISTING_REASSIGNMENT)
    admin = Admin(client)
    check_brokers(admin, plan.brokers)
    now = current_replicas(admin, plan)
    print("Current partition replica assignment\n")
    print_line(plan_text(now, current_log_dirs(client, now)))
    print()
    print("Save this to use as the --reassignment-json-file option during rollback")
    if rate >= 0 or folder_rate >= 0:
        print(VERIFY_LATER)
    if rate >= 0:
        set_throttles(client, throttle_settings(under_way, plan.replicas, now), rate)
        print(f"The inter-broker throttle limit was set to {rate} B/s")
    if folder_rate >= 0:
        set_log_dir_throttle(client, {replica.broker for replica in plan.folders}, folder_rate)
        print(f"The replica-alter-dir throttle limit was set to {folder_rate} B/s")
    may_change_factor = not options.has("disallow-replication-factor-change")
    refused = alter_reassignments(client, plan.replicas, may_change_factor=may_change_factor)
    if refused:
        raise TerseError("Error reassigning partition(s):\n" + _complaints(refused))
    print_line(f"Successfully started partition reassignment{_plural_s(plan.replicas)} for {_names(plan.replicas)}")
    if plan.folders:
        _move_folders(client, plan.folders, _number(options, "timeout", TIMEOUT_MS))


def _verify(client: Client, options: KafkaOptions) -> None:
    plan = parse_plan(_read(options, PLAN))
    admin = Admin(client)
    now = replicas_of(admin.topics(plan.topics)) if plan.topics else {}
    states = progress(plan, list_reassignments(client), now)
    print("Status of partition reassignment:")
    for partition, state in states.items():
        print_line(partition_line(partition, state, now.get(partition, ()), plan.replicas[partition]))
    folders = log_dir_states(client, plan.folders)
    for replica, folder in folders.items():
        print_line(folder_line(replica, folder, plan.folders[replica]))
    if not folders:
        print()
    is_over = ReassignmentState.UNDER_WAY not in states.values() and not any(
        is_moving(state) for state in folders.values()
    )
    if is_over and not options.has("preserve-throttles"):
        _clear_throttles(client, plan)


def _cancel(client: Client, options: KafkaOptions) -> None:
    plan = parse_plan(_read(options, PLAN))
    under_way = list_reassignments(client, plan.replicas) if plan.replicas else {}
    if under_way:
        refused = alter_reassignments(client, dict.fromkeys(under_way))
        if refused:
            raise TerseError(
                f"Error cancelling partition reassignment{_plural_s(refused)} for:\n{_complaints(refused)}"
            )
        print_line(f"Successfully cancelled partition reassignment{_plural_s(under_way)} for: {_names(under_way)}")
    else:
        print("None of the specified partition reassignments are active.")
    states = log_dir_states(client, plan.folders)
    back = {
        replica: state.current
        for replica, state in states.items()
        if state.current is not None and state.future == plan.folders[replica]
    }
    if back:
        _move_folders(client, back, _number(options, "timeout", TIMEOUT_MS))
    else:
        print("None of the specified partition moves are active.", end="")
    if not options.has("preserve-throttles"):
        _clear_throttles(client, plan)


def _list(client: Client, _options: KafkaOptions) -> None:
    under_way = list_reassignments(client)
    if not under_way:
        print("No partition reassignments found.")
        return
    print("Current partition reassignments:")
    for partition, move in sorted(under_way.items()):
        print_line(move_line(partition, move))


_ACTIONS = {"generate": _generate, "execute": _execute, "verify": _verify, "cancel": _cancel, "list": _list}


# ---- lines


def partition_line(
    partition: TopicPartition, state: ReassignmentState, now: Sequence[int], wanted: Sequence[int]
) -> str:
    if state is ReassignmentState.UNDER_WAY:
        return f"Reassignment of partition {partition} is still in progress."
    if state is ReassignmentState.DONE:
        return f"Reassignment of partition {partition} is completed."
    return (
        f"There is no active reassignment of partition {partition}, but replica set is {_ids(now)} rather than "
        f"{_ids(wanted)}."
    )


def folder_line(replica: TopicPartitionReplica, state: LogDirState, wanted: str) -> str:
    replica_text = f"Partition {replica.partition} on broker {replica.broker}"
    if state.current is None and state.future is None:
        return (
            f"Partition {replica.partition} is not found in any live log dir on broker {replica.broker}. There is "
            "likely an offline log directory on the broker."
        )
    if state.future is None:
        if state.current == wanted:
            return f"Reassignment of replica {replica} completed successfully."
        return f"{replica_text} is not being moved from log dir {state.current} to {wanted}."
    if state.future == wanted:
        return f"Reassignment of replica {replica} is still in progress."
    return f"{replica_text} is being moved to log dir {state.future} instead of {wanted}."


def is_moving(state: LogDirState) -> bool:
    return state.future is not None or state.current is None


def move_line(partition: TopicPartition, move: Reassignment) -> str:
    adding = f" adding: {_ids(sorted(move.adding))}." if move.adding else ""
    removing = f" removing: {_ids(sorted(move.removing))}." if move.removing else ""
    return f"{partition}: replicas: {_ids(move.replicas)}.{adding}{removing}"


def _clear_throttles(client: Client, plan: Plan) -> None:
    brokers = throttled_brokers(Admin(client), plan)
    print(f"Clearing broker-level throttles on broker{_plural_s(brokers)} {_ids(brokers)}")
    clear_broker_throttles(client, brokers)
    print_line(f"Clearing topic-level throttles on topic{_plural_s(plan.topics)} {','.join(plan.topics)}")
    clear_topic_throttles(client, plan.topics)


def _move_folders(client: Client, wanted: Mapping[TopicPartitionReplica, str], timeout_ms: int) -> None:
    def tell(replica: TopicPartitionReplica) -> None:
        replica_text = f"for replica {replica.partition} with broker {replica.broker} "
        print_line(f"Successfully started moving log directory to {wanted[replica]} {replica_text}")

    late = move_log_dirs(client, wanted, timeout_ms, tell)
    if late:
        names = ",".join(map(str, late))
        raise TerseError(f"Timed out before log directory move{_plural_s(late)} could be started for: {names}")


def _complaints(refused: Mapping[TopicPartition, BrokerError]) -> str:
    return "\n".join(f"{partition}: {java_sentence(problem)}" for partition, problem in sorted(refused.items()))


def _read(options: KafkaOptions, name: str) -> str:
    with open(options.text(name) or "", encoding="utf-8") as file:
        return file.read()


def _number(options: KafkaOptions, name: str, default: int) -> int:
    found = options.number(name, LONG_MAX)
    return default if found is None else found


def _ids(brokers: Sequence[int]) -> str:
    return ",".join(map(str, brokers))


def _names(partitions: Mapping[TopicPartition, object]) -> str:
    return ",".join(map(str, sorted(partitions)))


def _plural_s(items: Mapping[TopicPartition, object] | Sequence[object]) -> str:
    return "" if len(items) == 1 else "s"
