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

ONE_LOOP: Final = "one event loop does this work: there is no thread pool to size"
NO_AUTHORIZER: Final = "there are no access rights yet"
NO_CLUSTER: Final = "there is one broker until clusters are built"
NO_COMPACTION: Final = "logs are not compacted yet"
NO_FOLLOWERS: Final = "one broker has no followers to talk to"
NO_GROUPS: Final = "consumer groups are not served yet"
NO_JAVA: Final = "it names Java classes, and there is no JVM to load them"
NO_METRICS: Final = "metrics are not published yet"
NO_MOVES: Final = "partitions are not moved between folders yet"
NO_PURGATORY: Final = "waiting requests are woken by appends and deadlines: there is no purgatory to purge"
NO_QUORUM: Final = "metadata is kept in one embedded store: there is no quorum"
NO_QUOTAS: Final = "quotas are not enforced yet"
NO_RECOMPRESSION: Final = "batches are stored as the producer compressed them"
NO_REQUEST_QUEUE: Final = "requests are handled as they are read: no bytes wait in a queue"
NO_SASL: Final = "SASL is not served yet"
NO_SHARE_GROUPS: Final = "share groups are not served yet"
NO_STREAMS_GROUPS: Final = "streams groups are not served yet"
NO_TIERS: Final = "there is no remote storage"
NO_TLS: Final = "TLS is not served yet"
NO_TOKENS: Final = "delegation tokens are not served yet"
NO_TRANSACTIONS: Final = "transactions are not served yet"
ONE_CHECKPOINT: Final = "all offset files are written at log.flush.offset.checkpoint.interval.ms"
ONE_LIMIT_PER_CONNECTION: Final = "each connection may have 100 requests under way"
ONE_SWEEP: Final = "expired producers are looked for at log.retention.check.interval.ms"
NO_PREALLOCATION: Final = "files only ever grow by what is written"
NO_OTHER_SHUTDOWN: Final = "a broker always finishes what it has accepted"
