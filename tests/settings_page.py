"""Generates docs/settings.md from the keys: `python -m tests.settings_page > docs/settings.md`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import groupby
from typing import Any, Final

from ottla.base.broker_keys import unused
from ottla.base.broker_settings import BrokerSettings
from ottla.base.legacy_keys import RENAMED, RETIRED, RETIRED_PREFIXES
from ottla.base.resource_keys import ClientMetricsKeys, GroupResourceKeys
from ottla.base.settings import Mode, Setting, Settings
from ottla.base.topic_keys import BROKER_SYNONYMS, TopicKeys

INTRODUCTION: Final = """\
# Settings

`ottla broker --config server.properties` reads Kafka's own file and keys; names, types, defaults and allowed values
are those of Apache Kafka 4.3. This page is generated from the code (`python -m tests.settings_page`).

* The file is a Java properties file. `--override key=value` on the command line overrides it.
* In a container (`ottla broker --from-environment`) variables are also settings: `KAFKA_LOG_RETENTION_HOURS=24` is
  `log.retention.hours=24`. They override the file, and the command line overrides them: see
  [deployment](deployment.md).
* A topic's own setting overrides the broker's. A broker's value is the first that is set of: a change for this broker
  (`kafka-configs.sh --entity-type brokers --entity-name 1`), a change for all brokers (`--entity-default`), the file,
  the default.
* "Change" shows whether a running broker accepts a new value: for all brokers or for one (`all`), for one only
  (`one`), for one listener of a broker (`listener`: `listener.name.NAME.ssl.keystore.location`), or not at all (empty:
  change the file and restart the broker).
* An unknown key is ignored with a warning that suggests the nearest known one.
* With an invalid value the broker does not start; one line gives file, line and cause.
"""

DIFFERENCES: Final = """\
## Differences from Apache Kafka

* Of the keys below only those with an entry under "Change" can be changed over the wire. Kafka also accepts
  `listeners`, `listener.security.protocol.map`, `metric.reporters` and `config.providers`. An unknown name is stored
  for a broker or for all, as in Kafka, and has no effect: the log warns, and `ottla doctor` lists it.
* A password that is changed over the wire is [encrypted](security.md#passwords-in-the-metadata) with
  `password.encoder.secret`, as in Kafka 3.9; Kafka 4 stores it unencrypted.
* A change to a file or a command (`ssl.keystore.location`, `ssl.truststore.location`, `sasl.kerberos.kinit.cmd`, a
  `keyTab` in `sasl.jaas.config`) is rejected unless the file is in a folder of `ottla.dynamic.config.allowed.paths`; a
  change to a class is always rejected.
* Of the keys of single listeners (`listener.name.NAME.*`, with the name in lower case) those of TLS and SASL,
  `max.connections` and `max.connection.creation.rate` take effect and can be changed at run time;
  `num.network.threads` is accepted. Kafka accepts such a change of SASL only for a new listener, and applies a change
  of `sasl.*` for the whole broker at the next start; here both apply to the next login.
* `process.roles`, `node.id` and `controller.*` may be omitted. If set, they must describe one node that is its own
  controller; the controller's listener is known but not opened. Several controllers are rejected: a cluster needs
  ZooKeeper (`zookeeper.connect`), as Kafka did until 3.9.
* A node without `node.id` and `broker.id` is node 1; with `zookeeper.connect` ZooKeeper assigns an id above
  `reserved.broker.max.id`, which is stored in `meta.properties`.
* The keys of ZooKeeper are those of Kafka 3.9, and are shown only if they are set. `zookeeper.session.timeout.ms` is
  6000, not 18000: a hanging broker is replaced after that time, a terminated one at once.
* Key stores are JKS, PKCS12 or PEM, regardless of `ssl.keystore.type`: the format is detected from the first bytes of
  a file. Changed files are reloaded within seconds. TLS 1.1 and older is not supported.
* If the host name does not resolve, the broker starts nevertheless: it advertises 127.0.0.1 and logs a warning.
* `min.insync.replicas` in the file is used when a cluster is new: from then on all brokers have one value, which is
  changed at run time (`ottla configs`), as in Kafka 4.3 with eligible leader replicas.
* `socket.send.buffer.bytes` and `socket.receive.buffer.bytes` are applied only if they are set, because Kafka's default
  of 100 KiB would disable the system's own tuning.
* Properties files are read as UTF-8 if they are valid UTF-8, otherwise as Latin-1, as in Java.
"""

_HEADINGS: Final = {
    "NetworkKeys": "Network",
    "ClusterKeys": "Node and cluster",
    "TopicDefaultKeys": "Creation of topics",
    "LogKeys": "Logs",
    "CleanerKeys": "Compaction",
    "ReplicationKeys": "Replication",
    "HealingKeys": "Healing",
    "BalancingKeys": "Balancing",
    "GroupKeys": "Consumer groups",
    "TransactionKeys": "Producer ids and transactions",
    "TlsKeys": "TLS",
    "SecurityKeys": "SASL and access rights",
    "OAuthKeys": "OAuth",
    "MeasurementKeys": "Quotas and metrics",
    "ExtensionKeys": "Keys that only ottla has",
    "AuditKeys": "The audit trail",
    "MaintenanceKeys": "Maintenance and slow brokers",
    "ZooKeeperKeys": "ZooKeeper",
}
_UNUSED_HEADINGS: Final = {
    unused.ALL_METRICS: "Recording level of metrics",
    "one event loop does this work: there is no thread pool to size": "Thread pools",
    unused.ACLS_LOADED_FIRST: "Listeners without access rules",
    "brokers are monitored by their ZooKeeper sessions": "Heartbeats of brokers",
    "brokers poll the controller, which opens no connections": "Connections of the controller",
    "an unclean leader is elected as soon as that is allowed": "Interval of unclean elections",
    "the system tunes these buffers automatically": "Socket buffers of followers",
    "a coordinator writes its records at once": "Delay of group coordinators",
    "write buffers are not reused": "Write buffers of group coordinators",
    unused.PROVIDERS: "Providers of values",
    unused.NO_JAVA: "Java classes",
    "delayed requests are completed by appends and deadlines: there is no purgatory to purge": "Purgatories",
    "metadata is stored in ZooKeeper or in the broker's own store: there is no quorum": "KRaft",
    unused.NO_REQUEST_QUEUE: "Request queues",
    unused.NO_SASL: "Parts of SASL",
    unused.NO_SHARE_GROUPS: "Share groups",
    unused.NO_STREAMS_GROUPS: "Streams groups",
    unused.NO_TIERS: "Remote storage",
    unused.NO_PROVIDERS: "Java's TLS providers",
    unused.DETECTED_FORMAT: "Formats of key stores",
    "two-phase commits are not supported": "Two-phase commits",
    "logs are always loaded in pieces of 1 MiB": "Load buffers of coordinators",
    "all supported versions are stable": "Unstable versions",
    "a failed log directory is reported to the controller at once": "Timeout of failed log directories",
    unused.SINGLE_CLIENT_SOCKET: "Client sockets of ZooKeeper",
    "background tasks run in the threads of num.io.threads": "Background threads",
    unused.BOUNDED_PIPELINE: "Requests to ZooKeeper in flight",
}
_RESOURCES: Final[tuple[tuple[str, type[Settings]], ...]] = (
    ("Group settings", GroupResourceKeys),
    ("Settings of subscriptions to client metrics", ClientMetricsKeys),
)
_CHANGE: Final = {
    Mode.READ_ONLY: "",
    Mode.PER_LISTENER: "listener",
    Mode.PER_BROKER: "one",
    Mode.CLUSTER_WIDE: "all",
}


def settings_page() -> str:
    """Return the text of the page."""
    return "\n".join(
        (
            INTRODUCTION,
            DIFFERENCES,
            "## Topic settings\n",
            *_topic_table(),
            "\n## Broker settings that take effect\n",
            *_effective_tables(),
            *_resource_tables(),
            "\n## Keys without effect\n",
            "These keys are read, checked and shown, so that files and tools for Kafka work.\n",
            *_unused_lists(),
            "\n## Old keys\n",
            *_old_keys(),
            "",
        )
    )


def _topic_table() -> Iterator[str]:
    yield "| Key | Type | Default | Broker key | Meaning |"
    yield "|---|---|---|---|---|"
    for key in TopicKeys.keys.values():
        if key.unused_reason is None:
            broker_key = BROKER_SYNONYMS[key.name][0][0] if key.name in BROKER_SYNONYMS else ""
            yield f"| `{key.name}` | {_kind(key)} | {_default(key)} | {_code(broker_key)} | {key.note} |"


def _effective_tables() -> Iterator[str]:
    for family in BrokerSettings.__bases__:
        keys = [key for key in _declared(family) if key.unused_reason is None]
        if not keys:
            continue
        yield f"\n### {_HEADINGS[family.__name__]}\n"
        yield "| Key | Type | Default | Change | Meaning |"
        yield "|---|---|---|---|---|"
        for key in keys:
            yield f"| `{key.name}` | {_kind(key)} | {_default(key)} | {_CHANGE[key.mode]} | {key.note} |"


def _resource_tables() -> Iterator[str]:
    """Yield the tables of group and client metrics settings that take effect."""
    for heading, table in _RESOURCES:
        keys = [key for key in table.keys.values() if key.unused_reason is None]
        if keys:
            yield f"\n## {heading}\n"
            yield "| Key | Type | Default | Meaning |"
            yield "|---|---|---|---|"
            for key in keys:
                yield f"| `{key.name}` | {_kind(key)} | {_default(key)} | {key.note} |"


def _unused_lists() -> Iterator[str]:
    tables: tuple[tuple[str, type[Settings]], ...] = (
        ("", BrokerSettings),
        ("topic key ", TopicKeys),
        ("group key ", GroupResourceKeys),
        ("client metrics key ", ClientMetricsKeys),
    )
    rows = [(key.unused_reason, f"{what}`{key.name}`", key) for what, table in tables for key in _unused(table)]
    for reason, group in groupby(sorted(rows, key=lambda row: (row[0], row[1])), key=lambda row: row[0]):
        yield f"\n### {_UNUSED_HEADINGS[reason]}\n"
        yield f"No effect, because {reason}.\n"
        yield "| Key | Type | Default | Meaning |"
        yield "|---|---|---|---|"
        for _, name, key in group:
            yield f"| {name} | {_kind(key)} | {_default(key)} | {key.note} |"


def _old_keys() -> Iterator[str]:
    yield "Each of these is accepted with a warning.\n"
    yield "| Key | Effect |"
    yield "|---|---|"
    yield "| `port`, `host.name` | same as `listeners=PLAINTEXT://host:port` |"
    yield "| `advertised.port`, `advertised.host.name` | same as `advertised.listeners=PLAINTEXT://host:port` |"
    yield "| `log.dir` | used if `log.dirs` is not set |"
    yield (
        "| `ssl.mode.enable` | with `true` the broker does not start, because TLS is enabled in `listeners`; "
        "`false` has no effect |"
    )
    for old, new in RENAMED.items():
        yield f"| `{old}` | same as `{new}` |"
    for old, reason in (*RETIRED.items(), *((f"{prefix}*", why) for prefix, why in RETIRED_PREFIXES.items())):
        yield f"| `{old}` | no effect, because {reason} |"


def _declared(family: type[Settings]) -> Iterator[Setting[Any]]:
    return (item for item in vars(family).values() if isinstance(item, Setting))


def _unused(table: type[Settings]) -> Iterable[Setting[Any]]:
    return (key for key in table.keys.values() if key.unused_reason is not None)


def _kind(key: Setting[Any]) -> str:
    return key.kind.name.lower()


def _default(key: Setting[Any]) -> str:
    return _code(key.display_value(None) or "")


def _code(text: str) -> str:
    return f"`{text}`" if text else ""


if __name__ == "__main__":
    print(settings_page(), end="")
