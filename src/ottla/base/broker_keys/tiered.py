"""Old segments in remote storage."""

from __future__ import annotations

from ottla.base.broker_keys.words import CLUSTER_WIDE, LOW, NO_TIERS
from ottla.base.setting_types import LONG_MAX, not_blank
from ottla.base.settings import Boolean, Double, Int, Long, OptionalText, Settings, Text


class TieredStorageKeys(Settings):
    """Old segments in remote storage."""

    follower_fetch_last_tiered_offset_enable = Boolean(
        False,
        mode=CLUSTER_WIDE,
        unused=NO_TIERS,
        note="Whether a new follower starts at the end of remote storage and leaves the older part there.",
    )
    log_local_retention_bytes = Long(
        -2,
        at_least=-2,
        mode=CLUSTER_WIDE,
        unused=NO_TIERS,
        note="Bytes of a partition that stay local once they are in remote storage; -2 is as retention.bytes.",
    )
    log_local_retention_ms = Long(
        -2,
        at_least=-2,
        mode=CLUSTER_WIDE,
        unused=NO_TIERS,
        note="Time that records stay local once they are in remote storage; -2 is as retention.ms.",
    )
    remote_fetch_max_wait_ms = Int(
        500, at_least=1, mode=CLUSTER_WIDE, unused=NO_TIERS, note="Longest time a fetch waits for remote storage."
    )
    remote_list_offsets_request_timeout_ms = Long(
        30_000,
        at_least=1,
        mode=CLUSTER_WIDE,
        unused=NO_TIERS,
        note="Longest time a search for offsets waits for remote storage.",
    )
    remote_log_index_file_cache_total_size_bytes = Long(
        1_073_741_824,
        at_least=1,
        importance=LOW,
        mode=CLUSTER_WIDE,
        unused=NO_TIERS,
        note="Disk space for indexes of remote segments.",
    )
    remote_log_index_file_cache_ttl_ms = Long(
        900_000,
        at_least=-1,
        importance=LOW,
        is_internal=True,
        unused=NO_TIERS,
        note="Time after which an unused index of a remote segment is dropped.",
    )
    remote_log_manager_copier_thread_pool_size = Int(
        10, at_least=1, mode=CLUSTER_WIDE, unused=NO_TIERS, note="Threads that copy segments to remote storage."
    )
    remote_log_manager_copy_max_bytes_per_second = Long(
        LONG_MAX, at_least=1, mode=CLUSTER_WIDE, unused=NO_TIERS, note="Most bytes a second copied to remote storage."
    )
    remote_log_manager_copy_quota_window_num = Int(
        11, at_least=1, unused=NO_TIERS, note="Windows over which the copy speed is averaged."
    )
    remote_log_manager_copy_quota_window_size_seconds = Int(
        1, at_least=1, unused=NO_TIERS, note="Length of one such window."
    )
    remote_log_manager_expiration_thread_pool_size = Int(
        10, at_least=1, mode=CLUSTER_WIDE, unused=NO_TIERS, note="Threads that delete expired remote segments."
    )
    remote_log_manager_fetch_max_bytes_per_second = Long(
        LONG_MAX,
        at_least=1,
        mode=CLUSTER_WIDE,
        unused=NO_TIERS,
        note="Most bytes a second fetched from remote storage.",
    )
    remote_log_manager_fetch_quota_window_num = Int(
        11, at_least=1, unused=NO_TIERS, note="Windows over which the fetch speed is averaged."
    )
    remote_log_manager_fetch_quota_window_size_seconds = Int(
        1, at_least=1, unused=NO_TIERS, note="Length of one such window."
    )
    remote_log_manager_follower_thread_pool_size = Int(
        2, at_least=1, mode=CLUSTER_WIDE, unused=NO_TIERS, note="Threads that follow remote logs on followers."
    )
    remote_log_manager_task_interval_ms = Long(
        30_000,
        at_least=1,
        importance=LOW,
        unused=NO_TIERS,
        note="Time between two runs that copy and expire remote segments.",
    )
    remote_log_manager_task_retry_backoff_max_ms = Long(
        30_000,
        at_least=1,
        importance=LOW,
        is_internal=True,
        unused=NO_TIERS,
        note="Longest wait before a failed remote task is tried again.",
    )
    remote_log_manager_task_retry_backoff_ms = Long(
        500,
        at_least=1,
        importance=LOW,
        is_internal=True,
        unused=NO_TIERS,
        note="First wait before a failed remote task is tried again.",
    )
    remote_log_manager_task_retry_jitter = Double(
        0.2,
        at_least=0,
        at_most=0.5,
        importance=LOW,
        is_internal=True,
        unused=NO_TIERS,
        note="Random share added to that wait.",
    )
    remote_log_manager_thread_pool_size = Int(
        2, at_least=1, unused=NO_TIERS, note="Threads for remote tasks that have no pool of their own."
    )
    remote_log_metadata_custom_metadata_max_bytes = Int(
        128,
        at_least=0,
        importance=LOW,
        unused=NO_TIERS,
        note="Most bytes of its own that a storage plug-in may keep per segment.",
    )
    remote_log_metadata_manager_class_name = Text(
        "org.apache.kafka.server.log.remote.metadata.storage.TopicBasedRemoteLogMetadataManager",
        check=not_blank,
        unused=NO_TIERS,
        note="Class that keeps the list of remote segments.",
    )
    remote_log_metadata_manager_class_path = OptionalText(unused=NO_TIERS, note="Where that class is found.")
    remote_log_metadata_manager_impl_prefix = Text(
        "rlmm.config.", check=not_blank, unused=NO_TIERS, note="Prefix of the keys that are handed to that class."
    )
    remote_log_metadata_manager_listener_name = OptionalText(
        check=not_blank, unused=NO_TIERS, note="Listener that the list keeper connects to."
    )
    remote_log_reader_max_pending_tasks = Int(
        100, at_least=1, unused=NO_TIERS, note="Most reads of remote storage that wait."
    )
    remote_log_reader_threads = Int(
        10, at_least=1, mode=CLUSTER_WIDE, unused=NO_TIERS, note="Threads that read from remote storage."
    )
    remote_log_storage_manager_class_name = OptionalText(
        check=not_blank, unused=NO_TIERS, note="Class that stores segments remotely."
    )
    remote_log_storage_manager_class_path = OptionalText(unused=NO_TIERS, note="Where that class is found.")
    remote_log_storage_manager_impl_prefix = Text(
        "rsm.config.", check=not_blank, unused=NO_TIERS, note="Prefix of the keys that are handed to that class."
    )
    remote_log_storage_system_enable = Boolean(
        False, unused=NO_TIERS, note="Whether segments can be kept in remote storage."
    )
