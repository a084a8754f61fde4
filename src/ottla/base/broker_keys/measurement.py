"""Quotas, metrics and client telemetry."""

from __future__ import annotations

from ottla.base.broker_keys.words import ALL_METRICS, LOW, NO_JAVA, NO_PURGATORY, PROVIDERS
from ottla.base.settings import ClassName, Int, Items, Long, Settings, Text


class MeasurementKeys(Settings):
    """Quotas, metrics and client telemetry."""

    client_quota_callback_class = ClassName(
        importance=LOW, unused=NO_JAVA, note="Class that decides which quota a client falls under."
    )
    config_providers = Items(importance=LOW, unused=PROVIDERS, note="Names of classes that fill in ${...} in values.")
    delete_records_purgatory_purge_interval_requests = Int(
        1, unused=NO_PURGATORY, note="Waiting DeleteRecords requests after which finished ones are swept out."
    )
    kafka_metrics_polling_interval_secs = Int(
        10, at_least=1, importance=LOW, unused=NO_JAVA, note="Time between two polls of the older metrics reporters."
    )
    kafka_metrics_reporters = Items(importance=LOW, unused=NO_JAVA, note="Classes that get the older kind of metrics.")
    metric_reporters = Items(
        ("org.apache.kafka.common.metrics.JmxReporter",),
        importance=LOW,
        unused=NO_JAVA,
        note="Classes that get the metrics.",
    )
    metrics_num_samples = Int(
        2, at_least=1, importance=LOW, note="Windows that the rates of connections and bytes are computed over."
    )
    metrics_recording_level = Text(
        "INFO", importance=LOW, unused=ALL_METRICS, note="Finest metrics that are recorded: INFO, DEBUG or TRACE."
    )
    metrics_sample_window_ms = Long(30_000, at_least=1, importance=LOW, note="Length of one such window.")
    producer_purgatory_purge_interval_requests = Int(
        1000, unused=NO_PURGATORY, note="Waiting produce requests after which finished ones are swept out."
    )
    quota_window_num = Int(
        11,
        at_least=1,
        importance=LOW,
        note="Windows over which the rates of client quotas are averaged.",
    )
    quota_window_size_seconds = Int(1, at_least=1, importance=LOW, note="Length of one such window.")
    telemetry_max_bytes = Int(
        1_048_576,
        at_least=1,
        importance=LOW,
        note="Most bytes of metrics that a client may push at a time.",
    )
