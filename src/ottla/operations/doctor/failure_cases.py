"""Common failure cases: symptom, cause and remedy, and their signs in logs.

F1 to F20 are the cases of docs/features.md. `signs` are texts in logs of brokers and clients by which `ottla doctor
--log FILE` recognises a case.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import NamedTuple

from ottla.operations.doctor.login_failures import LOGIN_FAILURE_PATTERNS

LINE_LENGTH_MAX = 300
ISR_SHRINK_CASE = "F3"
# One log line of our brokers reports both: followers that left the ISR and those that rejoined.
ISR_CHANGE = re.compile(r"in sync are \[([\d, ]*)\] now, before \[([\d, ]*)\]")


class RecognizedCase(NamedTuple):
    """A case that was recognised in a log."""

    case: str
    times: int
    last_line: str


def recognize_cases(lines: Iterable[str]) -> list[RecognizedCase]:
    """The recognised cases, in the order of their numbers, each with its last line."""
    words = [(sign.lower(), name) for name, case in CASES.items() for sign in case.log_patterns]
    counts: dict[str, int] = {}
    last: dict[str, str] = {}
    for line in lines:
        lower = line.lower()
        found = {name for sign, name in words if sign in lower}
        if is_isr_shrink(line):
            found.add(ISR_SHRINK_CASE)
        for name in found:
            counts[name] = counts.get(name, 0) + 1
            last[name] = line.strip()[:LINE_LENGTH_MAX]
    return [RecognizedCase(name, counts[name], last[name]) for name in CASES if name in counts]


def is_isr_shrink(line: str) -> bool:
    """Whether a broker's log line reports that a replica left the ISR."""
    match = ISR_CHANGE.search(line)
    if match is None:
        return False
    after, before = ({word.strip() for word in part.split(",")} for part in match.groups())
    return not before - {""} <= after


class FailureCase(NamedTuple):
    """One failure case."""

    title: str
    cause: str
    remedy: str
    log_patterns: tuple[str, ...] = ()


CASES = {
    "F1": FailureCase(
        "A broker was killed and finds damaged index files at its next start",
        "the process ended without closing its logs, so the last entries of an index were never written",
        "nothing to do: indexes are rebuilt from the log. Stop brokers with kafka-server-stop.sh (SIGTERM)",
        ("Found a corrupted index file", "corrupted index", "rebuilding index", "index is damaged"),
    ),
    "F2": FailureCase(
        "A host name cannot be resolved",
        "the name in advertised.listeners, or the machine's own name, is known neither to DNS nor to /etc/hosts",
        "add the name to DNS or /etc/hosts on every machine that connects, or advertise an address instead of a name",
        ("UnknownHostException", "Name or service not known", "Temporary failure in name resolution"),
    ),
    "F3": FailureCase(
        "A follower falls out of the in-sync replicas",
        "it copies more slowly than the leader writes: a slow or busy disk, a slow network, a pause, too few fetchers",
        "check the disk of that broker (iostat), raise num.replica.fetchers, or give it fewer partitions; "
        "replica.lag.time.max.ms is the time it may be behind",
        ("Shrinking ISR",),  # our brokers' line is found by is_shrinking
    ),
    "F4": FailureCase(
        "Too many replicas move at once",
        "every move copies a whole partition; many together take the network and the disks from clients",
        "slow it down: ottla reassign throttle 20000000. Move in smaller plans; ottla reassign cancel ends the "
        "current moves",
    ),
    "F5": FailureCase(
        "Clients reach the first broker but get LEADER_NOT_AVAILABLE or time out afterwards",
        "brokers advertise an address that the client cannot reach: a container's name, 127.0.0.1, an internal network",
        "set advertised.listeners (in old files advertised.host.name) to an address that clients can reach",
        ("LEADER_NOT_AVAILABLE", "LeaderNotAvailableException"),
    ),
    "F6": FailureCase(
        "A broker is gone",
        "its process was killed or has crashed, its machine is down, or the network to it is cut",
        "start it again: it copies what it missed and rejoins the ISR. Other replicas, if any, lead its partitions "
        "meanwhile. If it will not come back: ottla reassign generate --drain ID",
    ),
    "F7": FailureCase(
        "Records can be lost or written twice when a leader dies",
        "acks=0 and acks=1 do not wait for followers, and neither does acks=all when min.insync.replicas is 1; a "
        "producer without idempotence writes again what was written but not acknowledged",
        "acks=all, enable.idempotence=true, a replication factor of 3 and min.insync.replicas=2",
    ),
    "F8": FailureCase(
        "A consumer loses records or sees them twice after a crash",
        "enable.auto.commit commits by time: before the work is done (loss) or long after it (duplicates)",
        "commit after the work, or together with its result: docs/consumers.md has recipes for each",
    ),
    "F9": FailureCase(
        "A producer connects but cannot send",
        "the broker is down, its advertised address is wrong, or a record is larger than message.max.bytes",
        "ottla doctor for the first two; for the third raise max.message.bytes of the topic, or split the record",
        ("RecordTooLargeException", "MESSAGE_TOO_LARGE", "MessageSizeTooLargeException"),
    ),
    "F10": FailureCase(
        "A client cannot log in",
        "wrong user or password, wrong JAAS file or keytab, or another mechanism than the listener has",
        "compare sasl.mechanism and the JAAS settings of the client with the listener's; check the keytab: klist "
        "-kt. The broker's log has a line with the cause of each failed login: ottla doctor --log server.log",
        (
            "SaslAuthenticationException",
            "SASL_AUTHENTICATION_FAILED",
            "LoginException",
            "failed login from",
            *(sign for hint in LOGIN_FAILURE_PATTERNS for sign in hint.patterns),
        ),
    ),
    "F11": FailureCase(
        "A client may not use a topic, a group or the cluster",
        "in secure mode every operation needs a rule that allows it",
        "grant it: kafka-acls.sh --add --allow-principal User:NAME --operation ... --topic ...",
        (
            "TopicAuthorizationException",
            "TOPIC_AUTHORIZATION_FAILED",
            "GroupAuthorizationException",
            "Not authorized to access",
        ),
    ),
    "F12": FailureCase(
        "A consumer waits for ever, or says: Error getting partition metadata",
        "it may not describe the topic, so the topic does not exist for it",
        "grant DESCRIBE and READ on the topic and READ on the group, as in F11",
        ("Error getting partition metadata",),
    ),
    "F13": FailureCase(
        "A client says: SchemaException, Error reading field",
        "it speaks a version of the protocol that the other side does not, or brokers of several versions are mixed",
        "bring client and brokers to versions that fit: Kafka clients from 0.10.1 on ask for versions and work",
        (
            "SchemaException",
            "Error reading field",
            "UnsupportedVersionException",
            "UNSUPPORTED_VERSION",
            "and this broker supports v",  # ours; the last two are Apache Kafka's
            "and this broker does not know it",
            "Received request for disabled api",
            "Unsupported api with key",
        ),
    ),
    "F14": FailureCase(
        "Brokers, controller and metadata store disagree",
        "after a network cut an old and a new controller, or a broker that missed messages, know different leaders",
        "wait some seconds: brokers of ottla fetch what they missed and recover. If it persists, restart the broker "
        "that differs; with Apache Kafka delete /controller in ZooKeeper: another one is elected",
        ("Broker had a stale broker epoch", "STALE_CONTROLLER_EPOCH", "Cached zkVersion"),
    ),
    "F15": FailureCase(
        "Consumption stutters",
        "packets are lost or late: no data for a while, then it continues. Every loss costs at least a round trip, "
        "and a loss at the end of the data 200 ms and more",
        "repair the network (ping, ss -ti shows retransmits). Until then ottla.socket.congestion.control=bbr and "
        "ottla.socket.retransmission.timeout.min.ms=50 on the brokers improve throughput over such a link: "
        "docs/network.md",
    ),
    "F16": FailureCase(
        "A topic cannot be created: replication factor larger than available brokers",
        "each replica needs a broker of its own, and too few are alive",
        "start the missing brokers, or ask for fewer replicas; the defaults are default.replication.factor and "
        "offsets.topic.replication.factor",
        ("larger than available brokers", "INVALID_REPLICATION_FACTOR", "InvalidReplicationFactorException"),
    ),
    "F17": FailureCase(
        "Topics appear by themselves",
        "with auto.create.topics.enable=true any request for a missing topic creates it, also a consumer's",
        "set auto.create.topics.enable=false on all brokers, and create topics by hand",
    ),
    "F18": FailureCase(
        "A consumer group falls behind",
        "its consumers are slower than the producers, or none is running",
        "start more consumers (up to one for each partition), speed up their work, or delete the group if it is no "
        "longer needed: ottla groups delete NAME",
    ),
    "F19": FailureCase(
        "A group rebalances again and again",
        "a member processes a poll longer than max.poll.interval.ms, or misses heartbeats",
        "fewer records a poll (max.poll.records), a longer max.poll.interval.ms, or work in another thread",
        ("max.poll.interval.ms", "PreparingRebalance", "Preparing to rebalance group", "CommitFailedException"),
    ),
    "F20": FailureCase(
        "Replicas leave the ISR and come back all the time",
        "a broker pauses: garbage collection of a JVM, swapping, CPU steal of a virtual machine, a disk that blocks",
        "check the pauses (GC log, vmstat, ottla top); leave memory to the page cache, and switch swap off",
        ("Expanding ISR",),
    ),
}
