"""Short names for the tables of keys, and the reasons why some keys have no effect.

A reason completes the sentence "accepted, no effect, because ...".
"""

from __future__ import annotations

from typing import Final

from ottla.base.settings import Importance, Mode

HIGH: Final = Importance.HIGH
LOW: Final = Importance.LOW
CLUSTER_WIDE: Final = Mode.CLUSTER_WIDE
PER_BROKER: Final = Mode.PER_BROKER
PER_LISTENER: Final = Mode.PER_LISTENER

ALL_METRICS: Final = "everything is counted, and costs nothing that could be saved"
ONE_LOOP: Final = "one event loop does this work: there is no thread pool to size"
RULES_FIRST: Final = "no listener opens before the access rules are known"
SESSIONS_TELL: Final = "the sessions of brokers with ZooKeeper tell who is alive"
BROKERS_ASK: Final = "brokers ask the controller, which connects to nobody"
ELECTED_AT_ONCE: Final = "such a leader is elected as soon as that is allowed"
SYSTEM_TUNES: Final = "the system tunes these buffers by itself"
NO_LINGER: Final = "a coordinator writes each decision at once"
NO_WRITE_BUFFER: Final = "no write buffer outlives its batch"
PROVIDERS: Final = "env, file and directory fill in ${...} without being named, and there is no JVM to load others"
NO_JAVA: Final = "it names Java classes, and there is no JVM to load them"
NO_PURGATORY: Final = "waiting requests are woken by appends and deadlines: there is no purgatory to purge"
NO_QUORUM: Final = "metadata is kept in ZooKeeper, or in a store of the broker's own: there is no quorum"
NO_REQUEST_QUEUE: Final = "requests are handled as they are read: there is no queue to limit"
NO_SASL: Final = "this part of SASL is not built"
NO_SHARE_GROUPS: Final = "share groups are not served yet"
NO_STREAMS_GROUPS: Final = "streams groups are not served yet"
NO_TIERS: Final = "there is no remote storage"
NO_PROVIDERS: Final = "OpenSSL does this, and there is no JVM to choose from"
SEEN_IN_FILE: Final = "the form of a file is seen in its first bytes"
NO_TWO_PHASES: Final = "producers with two-phase commits are not served"
SMALL_PIECES: Final = "a log is loaded in pieces of 1 MiB, while others are served"
TOPICS_AT_ONCE: Final = "new topics are matched at the next heartbeat"
NOTHING_UNFINISHED: Final = "everything that is served is finished"
OWN_CONTROLLER: Final = "the controller learns of a broken folder at once"
ONE_SOCKET: Final = "zookeeper.ssl.client.enable alone switches TLS to ZooKeeper on"
ONE_POOL: Final = "chores run in the threads of num.io.threads"
OWN_WINDOW: Final = "reads are bundled, and their number is bounded by what the connection can take"
