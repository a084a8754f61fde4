"""Generates docs/settings.md from the keys: `python -m tests.settings_page > docs/settings.md`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import groupby
from typing import Any, Final

from ottla.base.broker_settings import BrokerSettings
from ottla.base.legacy_keys import RENAMED, RETIRED, RETIRED_PREFIXES
from ottla.base.resource_keys import ClientMetricsKeys, GroupResourceKeys
from ottla.base.settings import Mode, Setting, Settings
from ottla.base.topic_keys import BROKER_SYNONYMS, TopicKeys

INTRODUCTION: Final = """\
# Settings

`ottla broker --config server.properties` reads Kafka's own file and keys; names, types, defaults and allowed values
are those of Apache Kafka 4.3. This page is made from the code (`python -m tests.settings_page`).

* The file is a Java properties file. `--override key=value` on the command line wins over it.
* In a container (`ottla broker --from-environment`) variables are settings too: `KAFKA_LOG_RETENTION_HOURS=24` is
  `log.retention.hours=24`. They win over the file, and the command line over them: see [deployment](deployment.md).
* A topic's own setting wins over the broker's. A broker's value comes from the first of: a change for this broker
  (`kafka-configs.sh --entity-type brokers --entity-name 1`), a change for all brokers (`--entity-default`), the file,
  the default.
* "Change" says whether a running broker takes a new value: for all brokers or for one (`all`), for one only
  (`one`), for one listener of a broker (`listener`: `listener.name.NAME.ssl.keystore.location`), or not (empty:
  change the file and start again).
* An unknown key is ignored with a warning that names the nearest known one.
* A bad value stops the start with one line: file, line, cause.
"""

DIFFERENCES: Final = """\
## What differs from Apache Kafka

* Of the keys of the tables below only those with an entry under "Change" can be changed over the wire. Kafka also
  takes `listeners`, `listener.security.protocol.map`, `metric.reporters` and `config.providers`. A name that is not
  known is stored for a broker or for all, as by Kafka, and has no effect: the log warns, and `ottla doctor` lists it.
* A password that is changed over the wire is [encrypted](security.md#passwords-in-the-metadata) with
  `password.encoder.secret`, as by Kafka 3.9; Kafka 4 stores it as it is.
* A change that names a file or a command (`ssl.keystore.location`, `ssl.truststore.location`,
  `sasl.kerberos.kinit.cmd`, a `keyTab` in `sasl.jaas.config`) is refused unless the file lies in a folder of
  `ottla.dynamic.config.allowed.paths`; one that names another class is always refused.
* Of the keys of single listeners (`listener.name.NAME.*`, the name written small) those of TLS and SASL,
  `max.connections` and `max.connection.creation.rate` act and can be changed at run time, and `num.network.threads` is
  taken. Kafka takes such a change of SASL only for a listener that is new, and one of `sasl.*` for the whole broker
  acts there at the next start: here both count for the next login.
* `process.roles`, `node.id` and `controller.*` may be left out. Given, they must describe one node that is its own
  controller; the controller's listener is known but not opened. Several controllers are refused: a cluster needs
  ZooKeeper (`zookeeper.connect`), as Kafka did until 3.9.
* A node without `node.id` and `broker.id` is node 1; with `zookeeper.connect` ZooKeeper gives it a number above
  `reserved.broker.max.id`, which is kept in `meta.properties`.
* The keys of ZooKeeper are those of Kafka 3.9, and are shown only where they are set. `zookeeper.session.timeout.ms` is
  6000, not 18000: a broker that stands still is replaced after that time, a dead one at once.
* Key stores are JKS, PKCS12 or PEM, whatever `ssl.keystore.type` says: the first bytes of a file decide. Files that
  change are read anew within seconds; TLS 1.1 and older is not served.
* A host name that does not resolve does not stop the start: 127.0.0.1 is advertised then, with a warning.
* `min.insync.replicas` in the file counts when a cluster is new: from then on all brokers have one value, which is
  changed at run time (`ottla configs`), as in Kafka 4.3 with eligible leader replicas.
* `socket.send.buffer.bytes` and `socket.receive.buffer.bytes` are applied when they are set; Kafka's default of 100 KiB
  would switch the system's own tuning off.
* Properties files are read as UTF-8 where they are valid UTF-8, else as Latin-1 as Java does.
"""

_HEADINGS: Final = {
    "NetworkKeys": "Network",
    "ClusterKeys": "Node and cluster",
    "TopicDefaultKeys": "Making topics",
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
    "ExtensionKeys": "Keys of ottla alone",
    "AuditKeys": "The audit trail",
    "MaintenanceKeys": "Maintenance and slow brokers",
    "ZooKeeperKeys": "ZooKeeper",
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
    """The whole page."""
    return "\n".join(
        (
            INTRODUCTION,
            DIFFERENCES,
            "## Topic settings\n",
            *_topic_table(),
            "\n## Broker settings that take effect\n",
            *_effective_tables(),
            *_resource_tables(),
            "\n## Accepted, no effect, because ...\n",
            "These keys are read, checked and shown, so that files and tools for Kafka work; nothing acts on them.\n",
            *_unused_lists(),
            "\n## Old keys\n",
            *_old_keys(),
            "",
        )
    )


def _topic_table() -> Iterator[str]:
    yield "| Key | Type | Default | Broker key | What it does |"
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
        yield "| Key | Type | Default | Change | What it does |"
        yield "|---|---|---|---|---|"
        for key in keys:
            yield f"| `{key.name}` | {_kind(key)} | {_default(key)} | {_CHANGE[key.mode]} | {key.note} |"


def _resource_tables() -> Iterator[str]:
    """The settings of groups and client metrics subscriptions that take effect."""
    for heading, table in _RESOURCES:
        keys = [key for key in table.keys.values() if key.unused_reason is None]
        if keys:
            yield f"\n## {heading}\n"
            yield "| Key | Type | Default | What it does |"
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
        yield f"\n### ... {reason}\n"
        yield "| Key | Type | Default | What it is for |"
        yield "|---|---|---|---|"
        for _, name, key in group:
            yield f"| {name} | {_kind(key)} | {_default(key)} | {key.note} |"


def _old_keys() -> Iterator[str]:
    yield "Each of these is accepted with a warning.\n"
    yield "| Key | What becomes of it |"
    yield "|---|---|"
    yield "| `port`, `host.name` | taken as `listeners=PLAINTEXT://host:port` |"
    yield "| `advertised.port`, `advertised.host.name` | taken as `advertised.listeners=PLAINTEXT://host:port` |"
    yield "| `log.dir` | used when `log.dirs` is not set |"
    yield "| `ssl.mode.enable` | `true` stops the start: TLS is asked for in `listeners`; `false` has no effect |"
    for old, new in RENAMED.items():
        yield f"| `{old}` | taken as `{new}` |"
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
