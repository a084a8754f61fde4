"""The checks of `ottla doctor`, in the order in which findings are shown. Pure; each check is one function.

Problems are shown first, then warnings, then notes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator

from ottla.base.errors import Error
from ottla.base.text import format_count
from ottla.client.admin import Topic
from ottla.operations.doctor.cluster_facts import BROKER_TOPICS, UNCLEAN, ClusterFacts
from ottla.operations.doctor.failure_cases import CASES
from ottla.operations.doctor.findings import Finding, Severity, brokers_text, case_finding, is_local, shorten_list
from ottla.operations.sizes import size_text
from ottla.operations.topic_summary import min_isr, replication_factor

IMBALANCE_PERCENTAGE_MAX = 10
SLOW_MS, SLOW_MS_MAX = 100.0, 1000.0
SKEW_MS_MAX = 10_000
MOVES_MAX = 50
UNLIMITED = 2**63 - 1


# ---- brokers


def check_reachable(facts: ClusterFacts) -> Iterator[Finding]:
    for broker in facts.brokers.values():
        if broker.problem is None:
            continue
        is_name = "host name" in broker.problem
        what = f"broker {broker.id} cannot be reached at {broker.address}, the address that it advertises: "
        cause = broker.problem.partition(": ")[2].partition(". Is the broker")[0] or broker.problem
        yield case_finding(Severity.PROBLEM, "F2" if is_name else "F5", what + cause)


def check_advertised(facts: ClusterFacts) -> Iterator[Finding]:
    """A broker that advertises a loopback address in a cluster of several machines: remote clients cannot reach it."""
    odd = [broker for broker in facts.brokers.values() if is_local(broker.address.host) and broker.problem is None]
    others = [broker for broker in facts.brokers.values() if not is_local(broker.address.host)]
    for broker in odd if others else ():
        what = f"broker {broker.id} advertises {broker.address}, which only this machine can reach; others do not"
        yield case_finding(Severity.WARNING, "F5", what)


def check_missing_brokers(facts: ClusterFacts) -> Iterator[Finding]:
    held = Counter(broker for _, partition in facts.partitions() for broker in partition.replicas)
    for broker in sorted(set(held) - set(facts.brokers)):
        what = f"broker {broker} is not in the cluster, but holds {format_count(held[broker], 'replica')}"
        yield case_finding(Severity.PROBLEM, "F6", what)


def check_controller(facts: ClusterFacts) -> Iterator[Finding]:
    told = {broker.id: broker.controller_id for broker in facts.brokers.values() if broker.controller_id is not None}
    without = [id_ for id_, controller in told.items() if controller < 0]
    if without and len(without) == len(told):
        yield Finding(
            Severity.PROBLEM,
            "F14",
            "the cluster has no controller: no leader is elected, no topic created and no replica moved",
            "the last one died and no other could be elected: ZooKeeper cannot be reached, or no broker is registered",
            "check whether ZooKeeper answers (ottla zookeeper, echo srvr | nc HOST 2181) and read the brokers' logs",
        )
    elif without:
        yield case_finding(Severity.WARNING, "F14", f"{brokers_text(without)} know no controller, but the others do")


def check_metadata_agreement(facts: ClusterFacts) -> Iterator[Finding]:
    """Brokers that report another leader than most, under the same or an older epoch, and still do a moment later."""
    views = {broker.id: broker.leaders for broker in facts.brokers.values() if broker.leaders is not None}
    differing: dict[int, list[str]] = {}
    for name in {name for view in views.values() for name in view}:
        told = {broker: view.get(name) for broker, view in views.items()}
        if len(set(told.values())) < 2:
            continue
        newest = max((state for state in told.values() if state is not None), key=lambda state: state[1])
        current = facts.partitions_later.get(name)
        for broker, state in told.items():
            if state != newest and current is not None and current.leader == newest[0]:
                differing.setdefault(broker, []).append(str(name))
    for broker, names in sorted(differing.items()):
        yield case_finding(
            Severity.PROBLEM,
            "F14",
            f"broker {broker} reports other leaders than the rest: {shorten_list(sorted(names))}",
        )


def check_versions(facts: ClusterFacts) -> Iterator[Finding]:
    offered = {broker.id: broker.versions for broker in facts.brokers.values() if broker.versions}
    if len({tuple(sorted(versions.items())) for versions in offered.values()}) > 1:
        what = f"{brokers_text(offered)} offer different versions of the protocol"
        yield case_finding(Severity.NOTE, "F13", f"{what}: an upgrade is under way, or was never finished")


def check_response_times(facts: ClusterFacts) -> Iterator[Finding]:
    for broker in facts.brokers.values():
        worst = max(broker.milliseconds, default=0.0)
        if worst > SLOW_MS:
            severity = Severity.PROBLEM if worst > SLOW_MS_MAX else Severity.WARNING
            what = f"broker {broker.id} needed {worst:.0f} ms for an answer that takes a few"
            yield case_finding(severity, "F15", what)


def check_clocks(facts: ClusterFacts) -> Iterator[Finding]:
    """Records of internal topics that are dated in the future show a broker clock that is ahead. One that is behind
    cannot be detected.
    """
    leaders = {name: partition.leader for name, partition in facts.partitions()}
    ahead: dict[int, int] = {}
    early = []
    for name, newest_ms in facts.newest_ms.items():
        skew_ms = newest_ms - facts.now_ms
        if skew_ms <= SKEW_MS_MAX:
            continue
        if name.topic in BROKER_TOPICS:
            ahead[leaders[name]] = max(skew_ms, ahead.get(leaders[name], 0))
        else:
            early.append(str(name))
    for broker, skew_ms in sorted(ahead.items()):
        yield Finding(
            Severity.WARNING,
            "",
            f"the clock of broker {broker} is {skew_ms / 1000:.0f} s ahead of this machine's",
            "NTP does not keep its clock in sync, or this machine's",
            "run chrony or systemd-timesyncd on all machines: retention and searches by time use these clocks",
        )
    if early:
        yield Finding(
            Severity.NOTE,
            "",
            f"records are dated in the future: {shorten_list(sorted(early))}",
            "a producer's clock is ahead, or it writes seconds, microseconds or invented times as milliseconds",
            "correct the producer; such records outlive retention.ms. message.timestamp.after.max.ms refuses them",
        )


# ---- partitions


def check_leaders(facts: ClusterFacts) -> Iterator[Finding]:
    without = [str(name) for name, partition in facts.partitions() if partition.leader < 0]
    if without:
        yield Finding(
            Severity.PROBLEM,
            "F6",
            f"these partitions have no leader and are offline: {shorten_list(without)}",
            "all in-sync replicas are on brokers that are down, or in log directories that have failed",
            "start these brokers (ottla topics describe shows Replicas and Elr). If they are lost for good, ottla "
            "elect --election-type unclean elects another replica: records that it lacks are lost",
        )


def check_replicas(facts: ClusterFacts) -> Iterator[Finding]:
    moving = set(facts.reassignments)
    short = [
        (name, partition)
        for name, partition in facts.partitions()
        if len(partition.isr) < len(partition.replicas) and partition.leader >= 0 and name not in moving
    ]
    gone = [name for name, partition in short if set(partition.replicas) - set(partition.isr) - set(facts.brokers)]
    slow = [name for name, _ in short if name not in gone]
    if gone:
        yield case_finding(Severity.WARNING, "F6", f"replicas on brokers that are down: {shorten_list(map(str, gone))}")
    if slow:
        what = f"replicas that are behind, though their brokers are up: {shorten_list(map(str, slow))}"
        yield case_finding(Severity.WARNING, "F3", what)


def check_min_isr(facts: ClusterFacts) -> Iterator[Finding]:
    below = []
    for topic in facts.topics:
        least = min_isr(facts.topic_configs.get(topic.name, []))
        below += [
            f"{topic.name}-{item.number}"
            for item in topic.partitions
            if item.leader >= 0 and len(item.isr) < min(least, len(item.replicas))
        ]
    if below:
        yield Finding(
            Severity.PROBLEM,
            "F7",
            f"no writes with acks=all, because too few replicas are in sync: {shorten_list(below)}",
            "fewer replicas are in sync than min.insync.replicas requires: producers get NOT_ENOUGH_REPLICAS",
            "bring the missing brokers back. In an emergency lower min.insync.replicas of the topic: fewer copies",
        )


def check_isr_changes(facts: ClusterFacts) -> Iterator[Finding]:
    changed = [
        str(name)
        for name, partition in facts.partitions()
        if name in facts.partitions_later
        and set(facts.partitions_later[name].isr) != set(partition.isr)
        and name not in facts.reassignments
    ]
    if changed:
        yield case_finding(
            Severity.WARNING, "F20", f"the in-sync replicas changed during this check: {shorten_list(changed)}"
        )


def check_preferred_leaders(facts: ClusterFacts) -> Iterator[Finding]:
    should: Counter[int] = Counter()
    strayed: Counter[int] = Counter()
    for _, partition in facts.partitions():
        preferred = partition.replicas[0] if partition.replicas else -1
        should[preferred] += 1
        strayed[preferred] += partition.leader not in (preferred, -1)
    odd = [
        broker
        for broker in sorted(should)
        if broker in facts.brokers and 100 * strayed[broker] > IMBALANCE_PERCENTAGE_MAX * should[broker]
    ]
    if odd:
        count = sum(strayed[broker] for broker in odd)
        yield Finding(
            Severity.NOTE,
            "",
            f"{count} partitions are not led by their preferred leaders, {brokers_text(odd)}",
            "they were restarted, and leadership has not moved back yet",
            "it moves back within five minutes (auto.leader.rebalance.enable), at once with: ottla elect",
        )


def check_reassignments(facts: ClusterFacts) -> Iterator[Finding]:
    rates = [
        broker
        for broker, configs in facts.broker_configs.items()
        if configs.get("leader.replication.throttled.rate", "").isdigit()
        and int(configs["leader.replication.throttled.rate"]) < UNLIMITED
    ]
    if len(facts.reassignments) > MOVES_MAX and not rates:
        yield case_finding(
            Severity.WARNING, "F4", f"{len(facts.reassignments)} partitions move at once, without a throttle"
        )
    elif facts.reassignments:
        yield Finding(
            Severity.NOTE,
            "F4",
            f"{len(facts.reassignments)} partitions move",
            "a reassignment was requested",
            "ottla reassign list shows the progress",
        )
    if rates and not facts.reassignments:
        yield Finding(
            Severity.WARNING,
            "F4",
            f"a throttle is set on {brokers_text(rates)}, though no replica moves",
            "a plan was executed with --throttle and not verified afterwards",
            "ottla reassign throttle --off, or kafka-reassign-partitions.sh --verify with the plan",
        )


FREE_SHARE_MIN, FREE_SHARE_LOW = 0.05, 0.15
LAG_MAX = 10_000
REBALANCING = frozenset({"PreparingRebalance", "CompletingRebalance", "Assigning", "Reconciling"})


# ---- settings


def check_replication_factors(facts: ClusterFacts) -> Iterator[Finding]:
    if len(facts.brokers) < 2:
        return
    internal = [topic.name for topic in facts.topics if topic.is_internal and replication_factor(topic) == 1]
    if internal:
        yield Finding(
            Severity.WARNING,
            "F7",
            f"topics of the cluster itself with one replica: {shorten_list(internal)}",
            "they were created while there was one broker: the broker of a partition is needed by all its groups or "
            "transactions, and its disk has the only copy",
            'give them more: ottla reassign generate shows the form of a plan, with more brokers in "replicas"',
        )
    single = [topic.name for topic in facts.topics if not topic.is_internal and replication_factor(topic) == 1]
    if single:
        yield Finding(
            Severity.NOTE,
            "F7",
            f"topics with one replica, in a cluster of {len(facts.brokers)} brokers: {shorten_list(single)}",
            "they were created with --replication-factor 1, or default.replication.factor is 1",
            "if they matter, give them more replicas with ottla reassign execute",
        )


def check_min_isr_settings(facts: ClusterFacts) -> Iterator[Finding]:
    equal, above, lax = [], [], []
    for topic in facts.topics:
        least, factor = min_isr(facts.topic_configs.get(topic.name, [])), replication_factor(topic)
        if least > factor:
            above.append(topic.name)
        elif least == factor > 1:
            equal.append(topic.name)
        elif least == 1 and factor > 1 and not topic.is_internal:
            lax.append(topic.name)
    if above:
        yield Finding(
            Severity.WARNING,
            "F7",
            f"min.insync.replicas is above the replication factor: {shorten_list(above)}",
            "more replicas must be in sync than exist: older versions of Kafka refuse all writes with acks=all, "
            "newer ones accept them while all replicas are in sync",
            "lower min.insync.replicas of the topic, or give it more replicas",
        )
    if equal:
        yield Finding(
            Severity.WARNING,
            "F7",
            "no writes with acks=all as soon as one broker is down, because min.insync.replicas is as large as the "
            f"replication factor: {shorten_list(equal)}",
            "all replicas must be in sync for every write, also during a restart",
            "min.insync.replicas one below the replication factor: 2 of 3",
        )
    if lax:
        yield case_finding(
            Severity.NOTE,
            "F7",
            f"acks=all is acknowledged with a single copy, because min.insync.replicas is 1: {shorten_list(lax)}",
        )


def check_unclean_elections(facts: ClusterFacts) -> Iterator[Finding]:
    topics = [
        name
        for name, configs in facts.topic_configs.items()
        if any(c.name == UNCLEAN and c.value == "true" for c in configs)
    ]
    if topics:
        yield Finding(
            Severity.WARNING,
            "F7",
            f"topics that allow unclean elections: {shorten_list(topics)}",
            "unclean.leader.election.enable=true: without an in-sync replica, one that lacks records is elected",
            "set it to false where records matter; in an emergency: ottla elect --election-type unclean",
        )


def check_broker_settings(facts: ClusterFacts) -> Iterator[Finding]:
    count = len(facts.brokers)
    for key in (
        "default.replication.factor",
        "offsets.topic.replication.factor",
        "transaction.state.log.replication.factor",
    ):
        values = {int(c[key]) for c in facts.broker_configs.values() if c.get(key, "").isdigit()}
        if values and max(values) > count and not exists_already(facts.topics, key):
            yield case_finding(
                Severity.WARNING, "F16", f"{key} is {max(values)}, but {count} brokers are in the cluster"
            )
    if any(configs.get("auto.create.topics.enable") == "true" for configs in facts.broker_configs.values()):
        yield case_finding(
            Severity.NOTE, "F17", "any client creates a topic by asking for it (auto.create.topics.enable=true)"
        )
    for key in ("min.insync.replicas", "message.max.bytes", "default.replication.factor", "replica.lag.time.max.ms"):
        values_by_broker = {broker: configs[key] for broker, configs in facts.broker_configs.items() if key in configs}
        if len(set(values_by_broker.values())) > 1:
            told = ", ".join(f"{value} on {broker}" for broker, value in sorted(values_by_broker.items()))
            yield Finding(
                Severity.WARNING,
                "",
                f"brokers differ in {key}: {told}",
                "their server.properties were not changed together",
                "make them equal: the behaviour of a topic must not depend on its leader",
            )


def check_unknown_settings(facts: ClusterFacts) -> Iterator[Finding]:
    brokers_of: dict[str, list[int]] = {}
    for broker, names in sorted(facts.unknown_settings.items()):
        for name in names:
            brokers_of.setdefault(name, []).append(broker)
    if brokers_of:
        names = [f"{name!r} {brokers_text(brokers)}" for name, brokers in sorted(brokers_of.items())]
        yield Finding(
            Severity.NOTE,
            "",
            f"stored settings that no broker knows: {shorten_list(names)}",
            "kafka-configs.sh accepts any name, for plug-ins; a misspelt name has no effect",
            "if nothing reads it, remove it: kafka-configs.sh --alter --delete-config NAME",
        )


def exists_already(topics: Iterable[Topic], key: str) -> bool:
    names = {
        "offsets.topic.replication.factor": BROKER_TOPICS[0],
        "transaction.state.log.replication.factor": BROKER_TOPICS[1],
    }
    return any(topic.name == names.get(key) for topic in topics)


# ---- disks, groups, transactions


def check_log_dirs(facts: ClusterFacts) -> Iterator[Finding]:
    for broker, folders in sorted(facts.log_dirs.items()):
        for folder in folders:
            place = f"{folder.path} of broker {broker}"
            if folder.error is not Error.NONE:
                yield Finding(
                    Severity.PROBLEM,
                    "",
                    f"the log directory {place} has failed",
                    "its disk has reported an error, or the directory is gone",
                    "check the disk (dmesg, smartctl), then restart the broker: it copies what it lacks from others",
                )
            elif folder.total_bytes > 0 and folder.usable_bytes < FREE_SHARE_LOW * folder.total_bytes:
                is_full = folder.usable_bytes < FREE_SHARE_MIN * folder.total_bytes
                yield Finding(
                    Severity.PROBLEM if is_full else Severity.WARNING,
                    "",
                    f"the disk of {place} is nearly full: {size_text(folder.usable_bytes)} of "
                    f"{size_text(folder.total_bytes)} are free",
                    "the retained data nearly fills the disk: retention is too long, or partitions are spread unevenly",
                    "shorten retention.ms or retention.bytes of large topics (ottla log-dirs describe), or move some "
                    "partitions to other brokers or folders",
                )


def check_groups(facts: ClusterFacts) -> Iterator[Finding]:
    idle = [
        f"{item.group.group_id} ({item.lag} records)" for item in facts.groups if not item.group.members and item.lag
    ]
    behind = [
        f"{item.group.group_id} ({item.lag} records)"
        for item in facts.groups
        if item.group.members and item.lag is not None and item.lag > LAG_MAX and not item.is_falling_behind
    ]
    falling = [f"{item.group.group_id} ({item.lag} records)" for item in facts.groups if item.is_falling_behind]
    restless = [item.group.group_id for item in facts.groups if item.group.state in REBALANCING]
    if idle:
        yield case_finding(Severity.NOTE, "F18", f"these groups have no members and fall behind: {shorten_list(idle)}")
    if falling:
        yield case_finding(
            Severity.WARNING, "F18", f"these groups fall further and further behind: {shorten_list(falling)}"
        )
    if behind:
        yield case_finding(Severity.WARNING, "F18", f"these groups are behind: {shorten_list(behind)}")
    if restless:
        yield case_finding(Severity.NOTE, "F19", f"these groups rebalance at this moment: {shorten_list(restless)}")


def check_hanging_transactions(facts: ClusterFacts) -> Iterator[Finding]:
    if facts.hanging:
        names = sorted({str(item.partition) for item in facts.hanging})
        yield Finding(
            Severity.PROBLEM,
            "",
            f"transactions hang in {shorten_list(names)}: read_committed consumers are stuck there",
            "a transaction is open in the partition, but its coordinator no longer knows it",
            "ottla transactions find-hanging shows them, ottla transactions abort ends one",
        )


def check_failed_reads(facts: ClusterFacts) -> Iterator[Finding]:
    if facts.unauthorized_reads:
        yield Finding(
            Severity.NOTE,
            "F11",
            f"this login may not describe {shorten_list(facts.unauthorized_reads)}",
            CASES["F11"].cause,
            "use an administrator's login (--command-config) to see more",
        )
    for what in facts.failed_reads:
        yield Finding(
            Severity.WARNING,
            "",
            f"could not be checked: {what}",
            "the broker refused or did not answer in time",
            "fix the findings above, then check again",
        )


CHECKS: tuple[Callable[[ClusterFacts], Iterator[Finding]], ...] = (
    check_controller,
    check_reachable,
    check_missing_brokers,
    check_leaders,
    check_min_isr,
    check_replicas,
    check_metadata_agreement,
    check_log_dirs,
    check_hanging_transactions,
    check_advertised,
    check_response_times,
    check_clocks,
    check_isr_changes,
    check_reassignments,
    check_replication_factors,
    check_min_isr_settings,
    check_unclean_elections,
    check_broker_settings,
    check_unknown_settings,
    check_versions,
    check_groups,
    check_preferred_leaders,
    check_failed_reads,
)


def diagnose(facts: ClusterFacts) -> list[Finding]:
    return sort_by_severity(finding for check in CHECKS for finding in check(facts))


def sort_by_severity(findings: Iterable[Finding]) -> list[Finding]:
    order = list(Severity)
    return sorted(findings, key=lambda finding: order.index(finding.severity))
