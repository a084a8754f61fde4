"""Producer ids and transactions."""

from __future__ import annotations

from ottla.base.broker_keys.words import CLUSTER_WIDE, HIGH, LOW, NO_TWO_PHASES, SMALL_PIECES
from ottla.base.settings import Boolean, Int, Settings, Short


class TransactionKeys(Settings):
    """Producer ids and transactions."""

    add_partitions_to_txn_retry_backoff_max_ms = Int(
        100,
        at_least=0,
        importance=HIGH,
        note="Longest wait of a producer request that found its transaction's previous end still running.",
    )
    add_partitions_to_txn_retry_backoff_ms = Int(
        20,
        at_least=1,
        importance=HIGH,
        note="Wait before such a request is tried again on the broker.",
    )
    producer_id_expiration_check_interval_ms = Int(
        600_000,
        at_least=1,
        importance=LOW,
        is_internal=True,
        note="Time between two searches for producer ids that are too old.",
    )
    producer_id_expiration_ms = Int(
        86_400_000,
        at_least=1,
        importance=LOW,
        mode=CLUSTER_WIDE,
        note="Time without a write after which a partition forgets an idempotent producer.",
    )
    transaction_abort_timed_out_transaction_cleanup_interval_ms = Int(
        10_000,
        at_least=1,
        importance=LOW,
        note="Time between two searches for transactions that ran out of time.",
    )
    transaction_max_timeout_ms = Int(
        900_000,
        at_least=1,
        importance=HIGH,
        note="Longest transaction time-out that a producer may ask for.",
    )
    transaction_partition_verification_enable = Boolean(
        True,
        importance=LOW,
        mode=CLUSTER_WIDE,
        note="Whether a write is checked to belong to a running transaction.",
    )
    transaction_remove_expired_transaction_cleanup_interval_ms = Int(
        3_600_000,
        at_least=1,
        importance=LOW,
        note="Time between two searches for transactional ids that are too old.",
    )
    transaction_state_log_load_buffer_size = Int(
        5_242_880,
        at_least=1,
        importance=HIGH,
        unused=SMALL_PIECES,
        note="Bytes read at a time when a coordinator loads transactions.",
    )
    transaction_state_log_min_isr = Int(
        2,
        at_least=1,
        importance=HIGH,
        note="Replicas of the transaction topic that must have a record before it counts.",
    )
    transaction_state_log_num_partitions = Int(
        50,
        at_least=1,
        importance=HIGH,
        note="Partitions of the transaction topic; to be set before it is created.",
    )
    transaction_state_log_replication_factor = Short(
        3, at_least=1, importance=HIGH, note="Replicas of the transaction topic."
    )
    transaction_state_log_segment_bytes = Int(
        104_857_600, at_least=1, importance=HIGH, note="Segment size of the transaction topic."
    )
    transaction_two_phase_commit_enable = Boolean(
        False,
        importance=LOW,
        unused=NO_TWO_PHASES,
        note="Whether producers may take part in two-phase commits, whose transactions never time out.",
    )
    transactional_id_expiration_ms = Int(
        604_800_000,
        at_least=1,
        importance=HIGH,
        note="Time without use after which a transactional id is forgotten.",
    )
