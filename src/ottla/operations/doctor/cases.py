"""Failure cases that people meet again and again: what one sees, where it comes from, what helps.

F1 to F20 are the cases of docs/features.md. `signs` are words of logs, of brokers and of clients, by which a case is
recognised when `ottla doctor --log FILE` reads one.
"""

from __future__ import annotations

from typing import NamedTuple

from ottla.operations.doctor.logins import HINTS


class Case(NamedTuple):
    """One failure case."""

    title: str
    cause: str
    cure: str
    signs: tuple[str, ...] = ()


CASES = {
    "F1": Case(
        "A broker was killed and finds damaged index files at its next start",
        "the process ended without closing its logs, so the last entries of an index were never written",
        "nothing has to be done: indexes are rebuilt from the log. Stop brokers with kafka-server-stop.sh (SIGTERM)",
        ("Found a corrupted index file", "corrupted index", "rebuilding index", "index is damaged"),
    ),
    "F2": Case(
        "A host name cannot be resolved",
        "the name in advertised.listeners, or the machine's own name, is known neither to DNS nor to /etc/hosts",
        "add the name to DNS or /etc/hosts on every machine that connects, or advertise an address instead of a name",
        ("UnknownHostException", "Name or service not known", "Temporary failure in name resolution"),
    ),
    "F3": Case(
        "A follower falls out of the in-sync replicas",
        "it copies more slowly than the leader writes: a slow or busy disk, a slow network, a pause, too few fetchers",
        "look at the disk of that broker (iostat), raise num.replica.fetchers, or give it fewer partitions; "
        "replica.lag.time.max.ms says how long it may be behind",
        ("Shrinking ISR",),  # and what doctor_logs.py finds in the line of our brokers
    ),
    "F4": Case(
        "Too many replicas move at once",
        "every move copies a whole partition; many together take the network and the disks from clients",
        "slow it down: ottla reassign throttle 20000000. Move in smaller plans; ottla reassign cancel ends what is "
        "under way",
    ),
    "F5": Case(
        "Clients reach the first broker but get LEADER_NOT_AVAILABLE or time out afterwards",
        "brokers tell clients an address that the client cannot reach: a container's name, 127.0.0.1, an inner network",
        "set advertised.listeners (in old files advertised.host.name) to an address that clients can reach",
        ("LEADER_NOT_AVAILABLE", "LeaderNotAvailableException"),
    ),
    "F6": Case(
        "A broker is gone",
        "its process was killed or has crashed, its machine is down, or the network to it is cut",
        "start it again: it copies what it has missed and is in sync after a while. Its partitions are led by others "
        "meanwhile, if they have other replicas. If it will not come back: ottla reassign generate --drain ID",
    ),
    "F7": Case(
        "Records can be lost or written twice when a leader dies",
        "acks=0 and acks=1 do not wait for followers, and neither does acks=all when min.insync.replicas is 1; a "
        "producer without idempotence writes again what was written but not acknowledged",
        "acks=all, enable.idempotence=true, a replication factor of 3 and min.insync.replicas=2",
    ),
    "F8": Case(
        "A consumer loses records or sees them twice after a crash",
        "enable.auto.commit commits by the clock: before the work is done (loss) or long after it (twice)",
        "commit after the work, or together with its result: docs/consumers.md has recipes for each",
    ),
    "F9": Case(
        "A producer connects but cannot send",
        "the broker is down, its advertised address is wrong, or a record is larger than message.max.bytes",
        "ottla doctor for the first two; for the third raise max.message.bytes of the topic, or split the record",
        ("RecordTooLargeException", "MESSAGE_TOO_LARGE", "MessageSizeTooLargeException"),
    ),
    "F10": Case(
        "A client cannot log in",
        "wrong user or password, wrong JAAS file or keytab, or another mechanism than the listener has",
        "compare sasl.mechanism and the JAAS settings of the client with the listener's; look at the keytab: klist -kt."
        " The broker's log has a line with the cause for each login that failed: ottla doctor --log server.log",
        (
            "SaslAuthenticationException",
            "SASL_AUTHENTICATION_FAILED",
            "LoginException",
            "failed login from",
            *(sign for hint in HINTS for sign in hint.signs),
        ),
    ),
    "F11": Case(
        "A client may not use a topic, a group or the cluster",
        "in secure mode everything is forbidden that no rule allows",
        "grant it: kafka-acls.sh --add --allow-principal User:NAME --operation ... --topic ...",
        (
            "TopicAuthorizationException",
            "TOPIC_AUTHORIZATION_FAILED",
            "GroupAuthorizationException",
            "Not authorized to access",
        ),
    ),
    "F12": Case(
        "A consumer waits for ever, or says: Error getting partition metadata",
        "it may not describe the topic, so the topic does not exist for it",
        "grant DESCRIBE and READ on the topic and READ on the group, as in F11",
        ("Error getting partition metadata",),
    ),
    "F13": Case(
        "A client says: SchemaException, Error reading field",
        "it speaks a version of the protocol that the other side does not, or brokers of several versions are mixed",
        "bring client and brokers to versions that fit: Kafka clients from 0.10.1 on ask for versions and work",
        (
            "SchemaException",
            "Error reading field",
            "UnsupportedVersionException",
            "UNSUPPORTED_VERSION",
            "and this broker speaks v",  # ours; the last two are of brokers of Apache Kafka
            "and this broker does not know it",
            "Received request for disabled api",
            "Unsupported api with key",
        ),
    ),
    "F14": Case(
        "Brokers, controller and metadata store tell different stories",
        "after a network cut an old and a new controller, or a broker that missed messages, know different leaders",
        "wait some seconds: brokers of ottla ask for what they have missed and heal by themselves. If it stays, "
        "restart the broker that differs; with Apache Kafka delete /controller in ZooKeeper: another one is elected",
        ("Broker had a stale broker epoch", "STALE_CONTROLLER_EPOCH", "Cached zkVersion"),
    ),
    "F15": Case(
        "Consumption stutters",
        "packets are lost or late on the way: no data for a while, then it goes on. Every loss costs at least a round "
        "trip, and one with nothing behind it 200 ms and more",
        "mend the network (ping, ss -ti shows retransmits). Until then ottla.socket.congestion.control=bbr and "
        "ottla.socket.retransmission.timeout.min.ms=50 on the brokers carry more over such a link: docs/network.md",
    ),
    "F16": Case(
        "A topic cannot be created: replication factor larger than available brokers",
        "each replica needs a broker of its own, and too few are alive",
        "start the missing brokers, or ask for fewer replicas; the defaults are default.replication.factor and "
        "offsets.topic.replication.factor",
        ("larger than available brokers", "INVALID_REPLICATION_FACTOR", "InvalidReplicationFactorException"),
    ),
    "F17": Case(
        "Topics appear by themselves",
        "with auto.create.topics.enable=true whoever asks for a topic that does not exist makes it, consumers too",
        "set auto.create.topics.enable=false on all brokers, and create topics by hand",
    ),
    "F18": Case(
        "A consumer group falls behind",
        "its consumers are slower than the producers, or nobody of the group runs",
        "start more consumers (up to one for each partition), make their work faster, or delete the group if it is not "
        "needed any more: ottla groups delete NAME",
    ),
    "F19": Case(
        "A group rebalances again and again",
        "a member works longer than max.poll.interval.ms on what it has polled, or misses heartbeats",
        "fewer records a poll (max.poll.records), a longer max.poll.interval.ms, or work in another thread",
        ("max.poll.interval.ms", "PreparingRebalance", "Preparing to rebalance group", "CommitFailedException"),
    ),
    "F20": Case(
        "Replicas leave the ISR and come back all the time",
        "a broker pauses: garbage collection of a JVM, swapping, a machine that is stolen from, a disk that blocks",
        "look at the pauses (GC log, vmstat, ottla top); leave memory to the page cache, and swap off",
        ("Expanding ISR",),
    ),
}
