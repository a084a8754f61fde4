"""Settings, disks, groups and transactions.  Pure; each check is one function."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from ottla.base.errors import Error
from ottla.client.admin import Topic
from ottla.operations.doctor.cases import CASES
from ottla.operations.doctor.facts import BROKER_TOPICS, UNCLEAN, Facts
from ottla.operations.doctor.findings import Finding, Severity, known, some
from ottla.operations.sizes import size_text
from ottla.operations.topic_replicas import min_isr, replication_factor

FREE_SHARE_MIN, FREE_SHARE_LOW = 0.05, 0.15
LAG_MAX = 10_000
REBALANCING = frozenset({"PreparingRebalance", "CompletingRebalance", "Assigning", "Reconciling"})


# ---- settings


def check_factors(facts: Facts) -> Iterator[Finding]:
    if len(facts.brokers) < 2:
        return
    internal = [topic.name for topic in facts.topics if topic.is_internal and replication_factor(topic) == 1]
    if internal:
        yield Finding(
            Severity.WARNING,
            "F7",
            f"topics of the cluster itself with one replica: {some(internal)}",
            "they were made while there was one broker: whoever holds a partition of them is needed by all its groups "
            "or transactions, and its disk is the only copy",
            'give them more: ottla reassign generate shows the form of a plan, with more brokers in "replicas"',
        )
    single = [topic.name for topic in facts.topics if not topic.is_internal and replication_factor(topic) == 1]
    if single:
        yield Finding(
            Severity.NOTE,
            "F7",
            f"topics with one replica, in a cluster of {len(facts.brokers)} brokers: {some(single)}",
            "they were created with --replication-factor 1, or default.replication.factor is 1",
            "if they matter, give them more replicas with ottla reassign execute",
        )


def check_min_isr_settings(facts: Facts) -> Iterator[Finding]:
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
            f"min.insync.replicas is above the replication factor: {some(above)}",
            "more replicas must be in sync than there are: older versions of Kafka refuse all writes with acks=all, "
            "newer ones take them while all replicas are in sync",
            "lower min.insync.replicas of the topic, or give it more replicas",
        )
    if equal:
        yield Finding(
            Severity.WARNING,
            "F7",
            "no writes with acks=all as soon as one broker is away, because min.insync.replicas is as large as the "
            f"replication factor: {some(equal)}",
            "all replicas must be in sync for every write, also during a restart",
            "min.insync.replicas one below the replication factor: 2 of 3",
        )
    if lax:
        yield known(
            Severity.NOTE,
            "F7",
            f"acks=all is acknowledged with a single copy, because min.insync.replicas is 1: {some(lax)}",
        )


def check_unclean(facts: Facts) -> Iterator[Finding]:
    topics = [
        name
        for name, configs in facts.topic_configs.items()
        if any(c.name == UNCLEAN and c.value == "true" for c in configs)
    ]
    if topics:
        yield Finding(
            Severity.WARNING,
            "F7",
            f"topics that allow unclean elections: {some(topics)}",
            "unclean.leader.election.enable=true: when no replica in sync is left, one that lacks records leads",
            "set it to false where records matter, and elect by hand in need (ottla elect --election-type unclean)",
        )


def check_broker_settings(facts: Facts) -> Iterator[Finding]:
    count = len(facts.brokers)
    for key in (
        "default.replication.factor",
        "offsets.topic.replication.factor",
        "transaction.state.log.replication.factor",
    ):
        values = {int(c[key]) for c in facts.broker_configs.values() if c.get(key, "").isdigit()}
        if values and max(values) > count and not made_already(facts.topics, key):
            yield known(Severity.WARNING, "F16", f"{key} is {max(values)}, but {count} brokers are in the cluster")
    if any(configs.get("auto.create.topics.enable") == "true" for configs in facts.broker_configs.values()):
        yield known(
            Severity.NOTE, "F17", "topics are created by whoever asks for them (auto.create.topics.enable=true)"
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
                "make them equal: what a topic does must not depend on who leads it",
            )


def made_already(topics: Iterable[Topic], key: str) -> bool:
    names = {
        "offsets.topic.replication.factor": BROKER_TOPICS[0],
        "transaction.state.log.replication.factor": BROKER_TOPICS[1],
    }
    return any(topic.name == names.get(key) for topic in topics)


# ---- disks, groups, transactions


def check_folders(facts: Facts) -> Iterator[Finding]:
    for broker, folders in sorted(facts.folders.items()):
        for folder in folders:
            place = f"{folder.path} of broker {broker}"
            if folder.error is not Error.NONE:
                yield Finding(
                    Severity.PROBLEM,
                    "",
                    f"the folder {place} has failed",
                    "its disk has reported an error, or the folder is gone",
                    "check the disk (dmesg, smartctl), then restart the broker: it copies what it lacks from others",
                )
            elif folder.total_bytes > 0 and folder.usable_bytes < FREE_SHARE_LOW * folder.total_bytes:
                is_full = folder.usable_bytes < FREE_SHARE_MIN * folder.total_bytes
                yield Finding(
                    Severity.PROBLEM if is_full else Severity.WARNING,
                    "",
                    f"the disk of {place} is nearly full: {size_text(folder.usable_bytes)} of "
                    f"{size_text(folder.total_bytes)} are free",
                    "more is kept than the disk holds: retention is too long, or partitions are spread unevenly",
                    "shorten retention.ms or retention.bytes of large topics (ottla log-dirs describe), or move some "
                    "partitions to other brokers or folders",
                )


def check_groups(facts: Facts) -> Iterator[Finding]:
    idle = [
        f"{item.group.group_id} ({item.lag} records)" for item in facts.groups if not item.group.members and item.lag
    ]
    behind = [
        f"{item.group.group_id} ({item.lag} records)"
        for item in facts.groups
        if item.group.members and item.lag is not None and item.lag > LAG_MAX
    ]
    restless = [item.group.group_id for item in facts.groups if item.group.state in REBALANCING]
    if idle:
        yield known(Severity.NOTE, "F18", f"nobody reads for these groups, and they fall behind: {some(idle)}")
    if behind:
        yield known(Severity.WARNING, "F18", f"these groups are behind: {some(behind)}")
    if restless:
        yield known(Severity.NOTE, "F19", f"these groups rebalance at this moment: {some(restless)}")


def check_hanging(facts: Facts) -> Iterator[Finding]:
    if facts.hanging:
        names = sorted({str(item.partition) for item in facts.hanging})
        yield Finding(
            Severity.PROBLEM,
            "",
            f"transactions hang in {some(names)}: whoever reads only committed records is stuck there",
            "a transaction is open in the partition, but its coordinator knows nothing of it any more",
            "ottla transactions find-hanging shows them, ottla transactions abort ends one",
        )


def check_unknown(facts: Facts) -> Iterator[Finding]:
    if facts.forbidden:
        yield Finding(
            Severity.NOTE,
            "F11",
            f"this login may not look at {some(facts.forbidden)}",
            CASES["F11"].cause,
            "use an administrator's login (--command-config) to see more",
        )
    for what in facts.unknown:
        yield Finding(
            Severity.WARNING,
            "",
            f"could not be looked at: {what}",
            "the broker refused or did not answer in time",
            "repair what is told above, then look again",
        )
