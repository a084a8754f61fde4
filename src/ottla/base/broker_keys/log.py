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
        note="Compression level of gzip, 1 to 9, if the broker compresses; -1 is the library's default.",
    )
    compression_lz4_level = Int(
        9,
        at_least=1,
        at_most=17,
        mode=CLUSTER_WIDE,
        note="Compression level of lz4, 1 to 17, if the broker compresses.",
    )
    compression_type = Text(
        "producer",
        check=one_of("uncompressed", "zstd", "lz4", "snappy", "gzip", "producer"),
        mode=CLUSTER_WIDE,
        note="Codec of stored batches: the name of a codec, uncompressed, or producer to keep the producer's codec.",
    )
    compression_zstd_level = Int(
        3,
        at_least=-131_072,
        at_most=22,
        mode=CLUSTER_WIDE,
        note="Compression level of zstd, if the broker compresses.",
    )
    cordoned_log_dirs = Items(
        mode=PER_BROKER, note="Log directories that get no new partitions while there are others; * is all of them."
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
        note="The log directory; used if log.dirs is not set.",
    )
    log_dirs = Items(
        None,
        may_be_empty=False,
        fallback=(("log.dir", 1),),
        note="Log directories, separated by commas; a new partition is created in the one with the fewest partitions.",
    )
    log_flush_interval_messages = Long(
        LONG_MAX,
        at_least=1,
        mode=CLUSTER_WIDE,
        note="Number of messages after which a partition is flushed to disk; the default of flush.messages.",
    )
    log_flush_interval_ms = Long(
        fallback=(("log.flush.scheduler.interval.ms", 1),),
        mode=CLUSTER_WIDE,
        note="Time after which a message is flushed to disk; the default of flush.ms.",
    )
    log_flush_offset_checkpoint_interval_ms = Int(
        60_000,
        at_least=0,
        note="Interval for writing the offsets up to which logs have been flushed to disk.",
    )
    log_flush_scheduler_interval_ms = Long(LONG_MAX, note="Interval for checking whether logs must be flushed to disk.")
    log_flush_start_offset_checkpoint_interval_ms = Int(
        60_000,
        at_least=0,
        note="Interval for writing the start offsets of logs.",
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
        note="Maximum size of a segment's offset index; the default of segment.index.bytes.",
    )
    log_initial_task_delay_ms = Long(
        30_000,
        at_least=0,
        is_internal=True,
        note="Delay of retention and flushing after the start.",
    )
    log_message_timestamp_after_max_ms = Long(
        3_600_000,
        at_least=0,
        mode=CLUSTER_WIDE,
        note="Maximum difference by which a record timestamp may be later than the broker's clock; the default of "
        "message.timestamp.after.max.ms.",
    )
    log_message_timestamp_before_max_ms = Long(
        LONG_MAX,
        at_least=0,
        mode=CLUSTER_WIDE,
        note="Maximum difference by which a record timestamp may be earlier than the broker's clock; the default of "
        "message.timestamp.before.max.ms.",
    )
    log_message_timestamp_type = Text(
        "CreateTime",
        check=one_of("CreateTime", "LogAppendTime"),
        mode=CLUSTER_WIDE,
        note="Timestamp of a record: CreateTime is the producer's, LogAppendTime the broker's.",
    )
    log_preallocate = Boolean(
        False,
        mode=CLUSTER_WIDE,
        note="Whether disk space for the whole segment is reserved when it is created.",
    )
    log_retention_bytes = Long(
        -1,
        mode=CLUSTER_WIDE,
        note="Size of a partition above which its oldest segments are deleted; -1 is unlimited.",
    )
    log_retention_check_interval_ms = Long(300_000, at_least=1, note="Interval for deleting expired segments.")
    log_retention_hours = Int(168, note="Hours for which records are kept; used if neither minutes nor ms are set.")
    log_retention_minutes = OptionalInt(note="Minutes for which records are kept; used when ms is not set.")
    log_retention_ms = RetentionTime(
        fallback=(("log.retention.minutes", 60_000), ("log.retention.hours", 360_0000)),
        mode=CLUSTER_WIDE,
        note="Time for which records are kept; -1 is forever; the default of retention.ms.",
    )
    log_roll_hours = Int(
        168,
        at_least=1,
        note="Hours after which a new segment is created; used when log.roll.ms is not set.",
    )
    log_roll_jitter_hours = Int(
        0,
        at_least=0,
        note="Maximum random time in hours by which segments roll earlier; used if log.roll.jitter.ms is not set.",
    )
    log_roll_jitter_ms = Long(
        fallback=(("log.roll.jitter.hours", 360_0000),),
        mode=CLUSTER_WIDE,
        note="Maximum random time by which segments roll earlier, so that they do not all roll at once.",
    )
    log_roll_ms = Long(
        fallback=(("log.roll.hours", 360_0000),),
        mode=CLUSTER_WIDE,
        note="Time after which a new segment is created, even if the current one is not full; the default of "
        "segment.ms.",
    )
    log_segment_bytes = Int(
        1_073_741_824,
        at_least=1_048_576,
        mode=CLUSTER_WIDE,
        note="Size at which a new segment is created; the default of segment.bytes.",
    )
    log_segment_delete_delay_ms = Long(
        60_000,
        at_least=0,
        mode=CLUSTER_WIDE,
        note="Time between marking a file as deleted and removing it from disk.",
    )
    message_max_bytes = Int(
        1_048_588,
        at_least=0,
        mode=CLUSTER_WIDE,
        note="Maximum size of a batch that producers may send, after compression; the default of max.message.bytes.",
    )
    num_recovery_threads_per_data_dir = Int(
        2,
        at_least=1,
        mode=CLUSTER_WIDE,
        note="Number of logs per log directory that are recovered concurrently after a crash; num.io.threads limits "
        "the total.",
    )
    num_replica_alter_log_dirs_threads = OptionalInt(
        note="Number of replicas that are moved between log directories concurrently; by default the number of log "
        "directories.",
    )


class CleanerKeys(Settings):
    """Compaction: keeping only the newest record of each key."""

    log_cleaner_backoff_ms = Long(
        15_000,
        at_least=0,
        mode=CLUSTER_WIDE,
        note="Wait of the cleaner if there is nothing to compact.",
    )
    log_cleaner_dedupe_buffer_size = Long(
        134_217_728,
        mode=CLUSTER_WIDE,
        note="Memory of all cleaners for the newest offset of each key; each cleaner uses at most 64 MiB.",
    )
    log_cleaner_delete_retention_ms = Long(
        86_400_000,
        at_least=0,
        mode=CLUSTER_WIDE,
        note="Time for which a tombstone stays after compaction; the default of delete.retention.ms.",
    )
    log_cleaner_enable = Boolean(True, note="Whether topics with cleanup policy compact are compacted.")
    log_cleaner_io_buffer_load_factor = Double(
        0.9,
        mode=CLUSTER_WIDE,
        note="Maximum load factor of the cleaner's memory; with more keys, a log needs another round.",
    )
    log_cleaner_io_buffer_size = Int(
        524_288,
        at_least=0,
        mode=CLUSTER_WIDE,
        note="Memory of all cleaners for reading and writing.",
    )
    log_cleaner_io_max_bytes_per_second = Double(
        DOUBLE_MAX,
        mode=CLUSTER_WIDE,
        note="Maximum number of bytes per second that all cleaners read and write.",
    )
    log_cleaner_max_compaction_lag_ms = Long(
        LONG_MAX,
        at_least=1,
        mode=CLUSTER_WIDE,
        note="Maximum time a record may wait for compaction; the default of max.compaction.lag.ms.",
    )
    log_cleaner_min_cleanable_ratio = Double(
        0.5,
        at_least=0,
        at_most=1,
        mode=CLUSTER_WIDE,
        note="Minimum ratio of uncompacted bytes at which a log is compacted; the default of "
        "min.cleanable.dirty.ratio.",
    )
    log_cleaner_min_compaction_lag_ms = Long(
        0,
        at_least=0,
        mode=CLUSTER_WIDE,
        note="Minimum time for which a record is not compacted; the default of min.compaction.lag.ms.",
    )
    log_cleaner_threads = Int(
        1, at_least=0, mode=CLUSTER_WIDE, note="Number of cleaner processes; each compacts one log at a time."
    )


class TopicDefaultKeys(Settings):
    """Creation and deletion of topics."""

    auto_create_topics_enable = Boolean(
        True,
        note="Whether a topic is created if a client requests its metadata or writes to it.",
    )
    default_replication_factor = Int(1, note="Replication factor of a topic that is created without one.")
    delete_topic_enable = Boolean(True, note="Whether topics can be deleted.")
    max_request_partition_size_limit = Int(
        2000, at_least=1, note="Maximum number of partitions in a response to DescribeTopicPartitions."
    )
    num_partitions = Int(1, at_least=1, note="Number of partitions of a topic that is created without one.")
