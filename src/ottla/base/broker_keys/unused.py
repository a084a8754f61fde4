"""Keys that are accepted without effect: they are only read, checked and shown.

The table has two lines for each key. The first has its name, type, default ("-" for none) and bounds, and its mode
and visibility where they are not the usual ones. The second says what the key is for. A line that begins
with "=" completes "accepted, no effect, because ...", for the keys that follow.
"""

from __future__ import annotations

from typing import Any, Final

from ottla.base.setting_types import PARSERS, not_blank
from ottla.base.settings import (
    CLUSTER_WIDE,
    Boolean,
    ClassName,
    Double,
    Int,
    Items,
    Long,
    Mode,
    OptionalText,
    Password,
    Setting,
    Settings,
    Short,
    Text,
)

ALL_METRICS: Final = "all metrics are always recorded, at no extra cost"
ACLS_LOADED_FIRST: Final = "no listener opens before the access rules are loaded"
PROVIDERS: Final = "the providers env, file and directory are always available, and there is no JVM to load others"
NO_JAVA: Final = "there is no JVM to load Java classes"
NO_REQUEST_QUEUE: Final = "requests are handled when they are read: there is no queue to limit"
NO_SASL: Final = "this part of SASL is not supported"
NO_SHARE_GROUPS: Final = "share groups are not supported yet"
NO_STREAMS_GROUPS: Final = "streams groups are not supported yet"
NO_TIERS: Final = "there is no remote storage"
NO_PROVIDERS: Final = "TLS is implemented by OpenSSL: there are no Java providers"
DETECTED_FORMAT: Final = "the format of a file is detected from its first bytes"
SINGLE_CLIENT_SOCKET: Final = "zookeeper.ssl.client.enable alone enables TLS to ZooKeeper"
BOUNDED_PIPELINE: Final = "reads are combined, and the connection limits their number"

KINDS: Final[dict[str, type[Setting[Any]]]] = {
    "boolean": Boolean,
    "class": ClassName,
    "double": Double,
    "int": Int,
    "list": Items,
    "long": Long,
    "password": Password,
    "short": Short,
    "string": Text,
}

TABLE: Final = """
= share groups are not supported yet
group.share.assignment.interval.ms int 1000 0.. cluster-wide
    Minimum time between two assignments of a share group.
group.share.delivery.count.limit int 5 2..10
    Number of deliveries after which a record is considered undeliverable.
group.share.heartbeat.interval.ms int 5000 1..
    Heartbeat interval for members of share groups.
group.share.initialize.retry.interval.ms int 30000 1.. internal
    Wait before the state of a share group's new partition is initialized again.
group.share.max.assignment.interval.ms int 15000 0..
    Maximum assignment interval that a share group may set.
group.share.max.delivery.count.limit int 10 5..25
    Maximum delivery count that a share group may set.
group.share.max.heartbeat.interval.ms int 15000 1..
    Maximum heartbeat interval that a share group may set.
group.share.max.partition.max.record.locks int 4000 2000..10000
    Maximum number of locked records per partition a share group may set.
group.share.max.record.lock.duration.ms int 60000 30000..3600000
    Maximum time of a record lock that a share group may set.
group.share.max.session.timeout.ms int 60000 1..
    Maximum session timeout that a share group may set.
group.share.max.share.sessions int 2000 1..
    Maximum number of share sessions per broker.
group.share.max.size int 200 1..1000
    Maximum number of members of one share group.
group.share.min.assignment.interval.ms int 0 0..
    Minimum assignment interval that a share group may set.
group.share.min.delivery.count.limit int 2 2..5
    Minimum delivery count that a share group may set.
group.share.min.heartbeat.interval.ms int 5000 1..
    Minimum heartbeat interval that a share group may set.
group.share.min.partition.max.record.locks int 100 100..2000
    Minimum number of locked records per partition that a share group may set.
group.share.min.record.lock.duration.ms int 15000 1000..30000
    Minimum time of a record lock that a share group may set.
group.share.min.session.timeout.ms int 45000 1..
    Minimum session timeout that a share group may set.
group.share.partition.max.record.locks int 2000 100..10000
    Maximum number of records per partition that may be acquired by consumers and not yet acknowledged.
group.share.persister.class.name string org.apache.kafka.server.share.persister.DefaultStatePersister internal
    Class that stores the state of share groups.
group.share.record.lock.duration.ms int 30000 1000..3600000
    Time within which a consumer must acknowledge a record of a share group.
group.share.session.timeout.ms int 45000 1..
    Time without a heartbeat after which a member of a share group is removed.
share.coordinator.append.linger.ms int -1 -1..
    Time for which the share coordinator gathers records before it writes them; -1 adapts to the load.
share.coordinator.cached.buffer.max.bytes int 1048588 524288.. cluster-wide
    Maximum size of the write buffer that a share coordinator keeps for its next batch.
share.coordinator.cold.partition.snapshot.interval.ms int 300000 1.. internal
    Time after which the state of an idle partition is written as a snapshot.
share.coordinator.load.buffer.size int 5242880 1..
    Bytes read at a time when a share coordinator loads its state.
share.coordinator.snapshot.update.records.per.snapshot int 500 0..500
    Updates between two snapshots of a share group's state.
share.coordinator.state.topic.compression.codec int 0
    Codec id of the share state topic; 0 is none.
share.coordinator.state.topic.min.isr short 2 1..
    Replicas of the share state topic that must have a record before it is committed.
share.coordinator.state.topic.num.partitions int 50 1..
    Number of partitions of the share state topic; must be set before it is created.
share.coordinator.state.topic.prune.interval.ms int 300000 1.. internal
    Interval for removing outdated share state.
share.coordinator.state.topic.replication.factor short 3 1..
    Replicas of the share state topic.
share.coordinator.state.topic.segment.bytes int 104857600 1..
    Segment size of the share state topic.
share.coordinator.write.timeout.ms int 5000 1..
    Time within which share state must reach all in-sync replicas.
= there is no remote storage
follower.fetch.last.tiered.offset.enable boolean false cluster-wide
    Whether a new follower starts at the end of remote storage and does not copy older segments.
remote.fetch.max.wait.ms int 500 1.. cluster-wide
    Maximum time for which a fetch waits for remote storage.
remote.list.offsets.request.timeout.ms long 30000 1.. cluster-wide
    Maximum time for which a search for offsets waits for remote storage.
remote.log.index.file.cache.total.size.bytes long 1073741824 1.. cluster-wide
    Disk space for indexes of remote segments.
remote.log.index.file.cache.ttl.ms long 900000 -1.. internal
    Time after which an unused index of a remote segment is removed from the cache.
remote.log.manager.copier.thread.pool.size int 10 1.. cluster-wide
    Threads that copy segments to remote storage.
remote.log.manager.copy.max.bytes.per.second long 9223372036854775807 1.. cluster-wide
    Maximum number of bytes per second that are copied to remote storage.
remote.log.manager.copy.quota.window.num int 11 1..
    Number of windows over which the copy rate is averaged.
remote.log.manager.copy.quota.window.size.seconds int 1 1..
    Length of one such window.
remote.log.manager.expiration.thread.pool.size int 10 1.. cluster-wide
    Threads that delete expired remote segments.
remote.log.manager.fetch.max.bytes.per.second long 9223372036854775807 1.. cluster-wide
    Maximum number of bytes per second that are fetched from remote storage.
remote.log.manager.fetch.quota.window.num int 11 1..
    Number of windows over which the fetch rate is averaged.
remote.log.manager.fetch.quota.window.size.seconds int 1 1..
    Length of one such window.
remote.log.manager.follower.thread.pool.size int 2 1.. cluster-wide
    Threads that follow remote logs on followers.
remote.log.manager.task.interval.ms long 30000 1..
    Time between two runs that copy and expire remote segments.
remote.log.manager.task.retry.backoff.max.ms long 30000 1.. internal
    Maximum wait before a failed remote task is retried.
remote.log.manager.task.retry.backoff.ms long 500 1.. internal
    Initial wait before a failed remote task is retried.
remote.log.manager.task.retry.jitter double 0.2 0..0.5 internal
    Random fraction that is added to that wait.
remote.log.manager.thread.pool.size int 2 1..
    Threads for remote tasks without a separate pool.
remote.log.metadata.custom.metadata.max.bytes int 128 0..
    Maximum number of bytes of custom metadata that a storage plugin may keep per segment.
remote.log.metadata.manager.class.path string -
    Class path of that class.
remote.log.reader.max.pending.tasks int 100 1..
    Maximum number of pending reads of remote storage.
remote.log.reader.threads int 10 1.. cluster-wide
    Threads that read from remote storage.
remote.log.storage.manager.class.path string -
    Class path of that class.
= metadata is stored in ZooKeeper or in the broker's own store: there is no quorum
controller.performance.always.log.threshold.ms long 2000 0.. internal
    Controller events slower than this are always logged.
controller.performance.sample.period.ms long 60000 100.. internal
    Interval for logging a summary of controller event times.
controller.quorum.append.linger.ms int 25 0..
    Time for which a quorum leader gathers records before it writes them.
controller.quorum.auto.join.enable boolean false
    Whether a new controller joins the quorum automatically.
controller.quorum.election.backoff.max.ms int 1000 0..
    Maximum random wait before another election of a quorum leader.
controller.quorum.election.timeout.ms int 1000 0..
    Time without a leader after which a new election starts.
controller.quorum.fetch.max.bytes int 1048576 1..
    Maximum number of bytes of metadata records in one quorum fetch.
controller.quorum.fetch.snapshot.max.bytes int 1048576 1..
    Maximum number of bytes of a metadata snapshot in one fetch.
controller.quorum.fetch.timeout.ms int 2000 0..
    Time without a successful fetch after which a voter becomes a candidate.
controller.quorum.request.timeout.ms int 2000 0..
    Timeout of a quorum request.
controller.quorum.retry.backoff.ms int 20 0..
    Wait before a failed quorum request is retried.
internal.metadata.delete.delay.millis long 60000 internal
    Wait before old metadata files are removed from disk.
internal.metadata.log.segment.bytes int - internal
    Segment size of the metadata log in tests.
internal.metadata.max.batch.size.in.bytes int 8388608 internal
    Maximum size of a batch of metadata records.
metadata.log.dir string -
    Directory of the metadata log.
metadata.log.max.record.bytes.between.snapshots long 20971520 1..
    Bytes of new metadata records after which a snapshot is created.
metadata.log.max.snapshot.interval.ms long 3600000 0..
    Time after which a metadata snapshot is created if there are changes.
metadata.log.segment.bytes int 1073741824 8388608..
    Segment size of the metadata log.
metadata.log.segment.ms long 604800000
    Time after which a new segment of the metadata log is created.
metadata.max.idle.interval.ms int 500 0..
    Time after which an idle controller writes an empty record.
metadata.max.retention.bytes long 104857600
    Bytes of metadata log and snapshots that are kept.
metadata.max.retention.ms long 604800000
    Time for which metadata log and snapshots are kept.
= this part of SASL is not supported
sasl.oauthbearer.assertion.claim.aud string -
    Audience claim of the assertion.
sasl.oauthbearer.assertion.claim.exp.seconds int 300 0..86400
    Time for which an assertion is valid.
sasl.oauthbearer.assertion.claim.iss string -
    Issuer claim of the assertion.
sasl.oauthbearer.assertion.claim.jti.include boolean false
    Whether each assertion has its own id.
sasl.oauthbearer.assertion.claim.nbf.seconds int 60 0..3600
    Time before now at which an assertion becomes valid.
sasl.oauthbearer.assertion.claim.sub string -
    Subject claim of the assertion.
sasl.oauthbearer.assertion.file string -
    File that contains a complete assertion.
sasl.oauthbearer.assertion.private.key.file string -
    File with the key that signs assertions.
sasl.oauthbearer.assertion.private.key.passphrase password -
    Password of that file.
sasl.oauthbearer.assertion.template.file string -
    File with more claims for assertions.
sasl.oauthbearer.jwt.retriever.class class org.apache.kafka.common.security.oauthbearer.DefaultJwtRetriever
    Class that gets tokens.
sasl.oauthbearer.jwt.validator.class class org.apache.kafka.common.security.oauthbearer.DefaultJwtValidator
    Class that checks tokens.
sasl.login.refresh.buffer.seconds short 300 per-broker
    Time left of a login before which it is renewed.
sasl.login.refresh.min.period.seconds short 60 per-broker
    Minimum time between two renewals.
sasl.login.refresh.window.jitter double 0.05 per-broker
    Random fraction by which that time is shifted.
sasl.login.retry.backoff.max.ms long 10000
    Maximum wait before a failed external login is retried.
sasl.login.retry.backoff.ms long 100
    Initial wait before a failed external login is retried.
sasl.mechanism.controller.protocol string GSSAPI
    SASL mechanism between brokers and controllers.
= streams groups are not supported yet
group.streams.assignment.interval.ms int 1000 0.. cluster-wide
    Minimum time between two assignments of a streams group.
group.streams.heartbeat.interval.ms int 5000 1..
    Heartbeat interval for members of streams groups.
group.streams.initial.rebalance.delay.ms int 3000 0..
    Time for which a new streams group waits for more members before its first assignment.
group.streams.max.assignment.interval.ms int 15000 0..
    Maximum assignment interval that a streams group may set.
group.streams.max.heartbeat.interval.ms int 15000 1..
    Maximum heartbeat interval that a streams group may set.
group.streams.max.session.timeout.ms int 60000 1..
    Maximum session timeout that a streams group may set.
group.streams.max.size int 2147483647 1..
    Maximum number of members of one streams group.
group.streams.max.standby.replicas int 2 0..
    Maximum number of standby copies of its state that a streams group may request.
group.streams.min.assignment.interval.ms int 0 0..
    Minimum assignment interval that a streams group may set.
group.streams.min.heartbeat.interval.ms int 5000 1..
    Minimum heartbeat interval that a streams group may set.
group.streams.min.session.timeout.ms int 45000 1..
    Minimum session timeout that a streams group may set.
group.streams.num.standby.replicas int 0 0..
    Standby copies of each task's state.
group.streams.session.timeout.ms int 45000 1..
    Time without a heartbeat after which a member of a streams group is removed.
= there is no JVM to load Java classes
client.quota.callback.class class -
    Class that determines the quota of a client.
kafka.metrics.polling.interval.secs int 10 1..
    Interval for polling the older metrics reporters.
kafka.metrics.reporters list -
    Classes that receive the older kind of metrics.
metric.reporters list org.apache.kafka.common.metrics.JmxReporter
    Classes that receive the metrics.
principal.builder.class class org.apache.kafka.common.security.authenticator.DefaultKafkaPrincipalBuilder per-broker
    Class that determines the principal of a connection.
sasl.client.callback.handler.class class -
    Class that supplies the broker's own login data as a client.
sasl.login.callback.handler.class class -
    Class that supplies login data.
sasl.login.class class -
    Class that performs logins.
security.providers string -
    Classes that supply security algorithms.
alter.config.policy.class.name class -
    Class that may reject changes of settings.
create.topic.policy.class.name class -
    Class that may reject new topics.
= delayed requests are completed by appends and deadlines: there is no purgatory to purge
delete.records.purgatory.purge.interval.requests int 1
    Waiting DeleteRecords requests after which finished ones are removed.
producer.purgatory.purge.interval.requests int 1000
    Waiting produce requests after which finished ones are removed.
share.fetch.purgatory.purge.interval.requests int 1000
    Waiting share fetches after which finished ones are removed.
fetch.purgatory.purge.interval.requests int 1000
    Waiting fetches after which finished ones are removed.
= one event loop does this work: there is no thread pool to size
share.coordinator.threads int 1 1..
    Threads that run share coordinators.
group.coordinator.background.threads int 2 1..
    Threads for slow work of group coordinators.
group.coordinator.threads int 4 1..
    Threads that run group coordinators.
num.network.threads int 3 1.. cluster-wide
    Threads that read requests and write responses, per listener.
= brokers are monitored by their ZooKeeper sessions
broker.heartbeat.interval.ms int 2000
    Time between two heartbeats of a broker to the controller.
broker.session.timeout.ms int 9000
    Time without a heartbeat after which the controller considers a broker failed.
initial.broker.registration.timeout.ms int 60000
    Time after which a starting broker gives up its registration with the controller.
= logs are always loaded in pieces of 1 MiB
transaction.state.log.load.buffer.size int 5242880 1..
    Bytes read at a time when a coordinator loads transactions.
offsets.load.buffer.size int 5242880 1..
    Bytes read at a time when a coordinator loads committed offsets.
= all supported versions are stable
unstable.api.versions.enable boolean false internal
    Whether API versions that are not finished are served.
unstable.feature.versions.enable boolean false internal
    Whether feature levels that are not finished may be used.
= all metrics are always recorded, at no extra cost
metrics.recording.level string INFO
    Recording level of metrics: INFO, DEBUG or TRACE.
= two-phase commits are not supported
transaction.two.phase.commit.enable boolean false
    Whether producers may take part in two-phase commits, whose transactions never time out.
= a coordinator writes its records at once
group.coordinator.append.linger.ms int -1 -1..
    Time for which the group coordinator gathers records before it writes them; -1 adapts to the load.
= write buffers are not reused
group.coordinator.cached.buffer.max.bytes int 1048588 524288.. cluster-wide
    Maximum size of the write buffer that a group coordinator keeps for its next batch.
= the system tunes these buffers automatically
replica.socket.receive.buffer.bytes int 65536
    Receive buffer of the connections from followers to leaders.
= an unclean leader is elected as soon as that is allowed
unclean.leader.election.interval.ms long 300000 1.. internal
    Interval for checking for partitions that need such an election.
= background tasks run in the threads of num.io.threads
background.threads int 10 1.. cluster-wide
    Threads for background tasks such as deleting files.
= a failed log directory is reported to the controller at once
log.dir.failure.timeout.ms long 30000 1..
    Time after which a broker that cannot report a failed log directory stops.
= brokers poll the controller, which opens no connections
controller.socket.timeout.ms int 30000
    Timeout of connections from the controller to brokers.
= requests are handled when they are read: there is no queue to limit
queued.max.requests int 500 1..
    Maximum number of queued requests before reading stops.
"""


def read_table(table: str) -> dict[str, Setting[Any]]:
    """The settings of a table, by attribute."""
    found: dict[str, Setting[Any]] = {}
    reason = ""
    lines = iter(table.strip().splitlines())
    for line in lines:
        if line.startswith("= "):
            reason = line.removeprefix("= ")
        else:
            name, kind, default, *words = line.split()
            found[name.replace(".", "_")] = unused_key(KINDS[kind], default, words, reason, next(lines).strip())
    return found


def unused_key(make: type[Setting[Any]], default: str, words: list[str], reason: str, note: str) -> Setting[Any]:
    parse = PARSERS[make.kind]
    details: dict[str, Any] = {"unused": reason, "note": note}
    if default != "-":
        details["default"] = parse(default)
    for word in words:
        smallest, dots, largest = word.partition("..")
        if dots:
            details["at_least"] = parse(smallest)
            details["at_most"] = parse(largest) if largest else None
        elif word == "internal":
            details["is_internal"] = True
        else:
            details["mode"] = Mode(word)
    return make(**details)


class UnusedKeys(Settings):
    """The keys of the table, and those whose values are checked in another way."""

    group_share_assignors = Items(
        ("simple",), may_be_empty=False, unused=NO_SHARE_GROUPS, note="Assignors of share groups."
    )
    log_local_retention_bytes = Long(
        -2,
        at_least=-2,
        mode=CLUSTER_WIDE,
        unused=NO_TIERS,
        note="Bytes of a partition that stay local after they are in remote storage; -2 is the value of "
        "retention.bytes.",
    )
    log_local_retention_ms = Long(
        -2,
        at_least=-2,
        mode=CLUSTER_WIDE,
        unused=NO_TIERS,
        note="Time for which records stay local after they are in remote storage; -2 is the value of retention.ms.",
    )
    remote_log_metadata_manager_class_name = Text(
        "org.apache.kafka.server.log.remote.metadata.storage.TopicBasedRemoteLogMetadataManager",
        check=not_blank,
        unused=NO_TIERS,
        note="Class that maintains the list of remote segments.",
    )
    remote_log_metadata_manager_impl_prefix = Text(
        "rlmm.config.", check=not_blank, unused=NO_TIERS, note="Prefix of the keys that are passed to that class."
    )
    remote_log_metadata_manager_listener_name = OptionalText(
        check=not_blank, unused=NO_TIERS, note="Listener to which that class connects."
    )
    remote_log_storage_manager_class_name = OptionalText(
        check=not_blank, unused=NO_TIERS, note="Class that stores segments remotely."
    )
    remote_log_storage_manager_impl_prefix = Text(
        "rsm.config.", check=not_blank, unused=NO_TIERS, note="Prefix of the keys that are passed to that class."
    )
    remote_log_storage_system_enable = Boolean(
        False, unused=NO_TIERS, note="Whether segments can be kept in remote storage."
    )

    locals().update(read_table(TABLE))
