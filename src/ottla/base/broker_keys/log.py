"""Keys for logs, compaction and new topics."""

from __future__ import annotations

from ottla.base.setting_types import DOUBLE_MAX, LONG_MAX, gzip_level, one_of
from ottla.base.settings import (
    CLUSTER_WIDE,
    PER_BROKER,
    Boolean,
    Double,
    Int,
    Items,
    Long,
    OptionalInt,
    Settings,
    Text,
)
from ottla.base.topic_settings import known_policies


class RetentionTime(Long):
    """A time in ms where every negative number means no limit."""

    def effective(self, settings: Settings) -> int:
        retention_ms: int = super().effective(settings)
        return max(-1, retention_ms)


class LogKeys(Settings):
    """Location and storage of logs; most of these are the defaults of topic settings."""

    compression_gzip_level = Int(
        -1,
        check=gzip_level,
        mode=CLUSTER_WIDE,
        note="Effort of gzip, 1 to 9, when the broker compresses; -1 is the library's own choice.",
    )
    compression_lz4_level = Int(
        9,
        at_least=1,
        at_most=17,
        mode=CLUSTER_WIDE,
        note="Effort of lz4, 1 to 17, when the broker compresses.",
    )
    compression_type = Text(
        "producer",
        check=one_of("uncompressed", "zstd", "lz4", "snappy", "gzip", "producer"),
        mode=CLUSTER_WIDE,
        note="Codec of stored batches: a codec's name, uncompressed, or producer to keep what the producer chose.",
    )
    compression_zstd_level = Int(
        3,
        at_least=-131_072,
        at_most=22,
        mode=CLUSTER_WIDE,
        note="Effort of zstd when the broker compresses.",
    )
    cordoned_log_dirs = Items(
        mode=PER_BROKER, note="Folders that get no new partitions as long as there are others; * is all of them."
    )
    log_cleanup_policy = Items(
        ("delete",),
        check=known_policies,
        mode=CLUSTER_WIDE,
        note="What happens to old segments: delete, compact or both; the default of cleanup.policy.",
    )
    log_dir = Items(
        ("/tmp/kafka-logs",),  # noqa: S108 - Kafka's default
        may_be_empty=False,
        note="The folder for data; used when log.dirs is not set.",
    )
    log_dirs = Items(
        None,
        may_be_empty=False,
        fallback=(("log.dir", 1),),
        note="Folders for data, separated by commas; a new partition goes to the one with the fewest partitions.",
    )
    log_flush_interval_messages = Long(
        LONG_MAX,
        at_least=1,
        mode=CLUSTER_WIDE,
        note="Messages of a partition after which it is forced to disk; the default of flush.messages.",
    )
    log_flush_interval_ms = Long(
        fallback=(("log.flush.scheduler.interval.ms", 1),),
        mode=CLUSTER_WIDE,
        note="Time a message may stay in memory before it is forced to disk; the default of flush.ms.",
    )
    log_flush_offset_checkpoint_interval_ms = Int(
        60_000,
        at_least=0,
        note="Time between two writings of the offsets up to which logs are safely on disk.",
    )
    log_flush_scheduler_interval_ms = Long(
        LONG_MAX, note="Time between two searches for logs that are due to be forced to disk."
    )
    log_flush_start_offset_checkpoint_interval_ms = Int(
        60_000,
        at_least=0,
        note="Time between two writings of the offsets at which logs start.",
    )
    log_index_interval_bytes = Int(
        4096,
        at_least=0,
        mode=CLUSTER_WIDE,
        note="Bytes of log between two entries of the offset index; the default of index.interval.bytes.",
    )
    log_index_size_max_bytes = Int(
        10_485_760,
        at_least=4,
        mode=CLUSTER_WIDE,
        note="Largest index of a segment; the default of segment.index.bytes.",
    )
    log_initial_task_delay_ms = Long(
        30_000,
        at_least=0,
        is_internal=True,
        note="Time after the start before retention and flushing begin.",
    )
    log_message_timestamp_after_max_ms = Long(
        3_600_000,
        at_least=0,
        mode=CLUSTER_WIDE,
        note="How far a message's time may lie in the future; the default of message.timestamp.after.max.ms.",
    )
    log_message_timestamp_before_max_ms = Long(
        LONG_MAX,
        at_least=0,
        mode=CLUSTER_WIDE,
        note="How far a message's time may lie in the past; the default of message.timestamp.before.max.ms.",
    )
    log_message_timestamp_type = Text(
        "CreateTime",
        check=one_of("CreateTime", "LogAppendTime"),
        mode=CLUSTER_WIDE,
        note="Whose time a message bears: CreateTime the producer's, LogAppendTime the broker's.",
    )
    log_preallocate = Boolean(
        False,
        mode=CLUSTER_WIDE,
        note="Whether the disk sets the whole room for a segment aside when it is begun.",
    )
    log_retention_bytes = Long(
        -1,
        mode=CLUSTER_WIDE,
        note="Bytes that a partition keeps at least; older segments go; -1 is without limit.",
    )
    log_retention_check_interval_ms = Long(
        300_000, at_least=1, note="Time between two searches for segments that may be deleted."
    )
    log_retention_hours = Int(168, note="Hours for which records are kept; used when neither minutes nor ms are set.")
    log_retention_minutes = OptionalInt(note="Minutes for which records are kept; used when ms is not set.")
    log_retention_ms = RetentionTime(
        fallback=(("log.retention.minutes", 60_000), ("log.retention.hours", 360_0000)),
        mode=CLUSTER_WIDE,
        note="Time for which records are kept; -1 is for ever; the default of retention.ms.",
    )
    log_roll_hours = Int(
        168,
        at_least=1,
        note="Hours after which a new segment is begun; used when log.roll.ms is not set.",
    )
    log_roll_jitter_hours = Int(
        0,
        at_least=0,
        note="Most hours by which segments roll earlier, at random; used when log.roll.jitter.ms is not set.",
    )
    log_roll_jitter_ms = Long(
        fallback=(("log.roll.jitter.hours", 360_0000),),
        mode=CLUSTER_WIDE,
        note="Most time by which segments roll earlier, at random, so that not all roll at once.",
    )
    log_roll_ms = Long(
        fallback=(("log.roll.hours", 360_0000),),
        mode=CLUSTER_WIDE,
        note="Time after which a new segment is begun, full or not; the default of segment.ms.",
    )
    log_segment_bytes = Int(
        1_073_741_824,
        at_least=1_048_576,
        mode=CLUSTER_WIDE,
        note="Size at which a new segment is begun; the default of segment.bytes.",
    )
    log_segment_delete_delay_ms = Long(
        60_000,
        at_least=0,
        mode=CLUSTER_WIDE,
        note="Time between taking a file out of use and removing it from disk.",
    )
    message_max_bytes = Int(
        1_048_588,
        at_least=0,
        mode=CLUSTER_WIDE,
        note="Largest batch that producers may send, compressed; the default of max.message.bytes.",
    )
    num_recovery_threads_per_data_dir = Int(
        2,
        at_least=1,
        mode=CLUSTER_WIDE,
        note="Logs of one folder that are checked at the same time after a crash; num.io.threads is the limit for all.",
    )
    num_replica_alter_log_dirs_threads = OptionalInt(
        note="Replicas that are moved between folders at the same time; the number of folders unless set.",
    )


class CleanerKeys(Settings):
    """Compaction: keeping only the newest record of each key."""

    log_cleaner_backoff_ms = Long(
        15_000,
        at_least=0,
        mode=CLUSTER_WIDE,
        note="Wait of the cleaner when there is nothing to compact.",
    )
    log_cleaner_dedupe_buffer_size = Long(
        134_217_728,
        mode=CLUSTER_WIDE,
        note="Memory of all cleaners together for the newest offset of each key; each one uses 64 MiB at most.",
    )
    log_cleaner_delete_retention_ms = Long(
        86_400_000,
        at_least=0,
        mode=CLUSTER_WIDE,
        note="How long a tombstone stays after compaction; the default of delete.retention.ms.",
    )
    log_cleaner_enable = Boolean(True, note="Whether topics with cleanup policy compact are compacted.")
    log_cleaner_io_buffer_load_factor = Double(
        0.9,
        mode=CLUSTER_WIDE,
        note="Share of the cleaner's memory that may be filled before another round is needed.",
    )
    log_cleaner_io_buffer_size = Int(
        524_288,
        at_least=0,
        mode=CLUSTER_WIDE,
        note="Memory of all cleaners together for reading and writing.",
    )
    log_cleaner_io_max_bytes_per_second = Double(
        DOUBLE_MAX,
        mode=CLUSTER_WIDE,
        note="Most bytes a second that cleaners read and write together.",
    )
    log_cleaner_max_compaction_lag_ms = Long(
        LONG_MAX,
        at_least=1,
        mode=CLUSTER_WIDE,
        note="Longest time a record may wait for compaction; the default of max.compaction.lag.ms.",
    )
    log_cleaner_min_cleanable_ratio = Double(
        0.5,
        at_least=0,
        at_most=1,
        mode=CLUSTER_WIDE,
        note="Share of not yet compacted bytes that starts a compaction; the default of min.cleanable.dirty.ratio.",
    )
    log_cleaner_min_compaction_lag_ms = Long(
        0,
        at_least=0,
        mode=CLUSTER_WIDE,
        note="Time for which a record is surely not compacted away; the default of min.compaction.lag.ms.",
    )
    log_cleaner_threads = Int(
        1, at_least=0, mode=CLUSTER_WIDE, note="Processes that compact, each with a log of its own."
    )


class TopicDefaultKeys(Settings):
    """Creation and deletion of topics."""

    auto_create_topics_enable = Boolean(
        True,
        note="Whether a topic comes into being when a client asks for its metadata or writes to it.",
    )
    default_replication_factor = Int(1, note="Replicas of a topic that is created without a number.")
    delete_topic_enable = Boolean(True, note="Whether topics can be deleted.")
    max_request_partition_size_limit = Int(
        2000, at_least=1, note="Most partitions in one answer to DescribeTopicPartitions."
    )
    num_partitions = Int(1, at_least=1, note="Partitions of a topic that is created without a number.")
