"""Keys that Kafka does not have: metrics endpoint, log files, observe-only modes, quotas of a whole broker, sockets."""

from __future__ import annotations

from ottla.base.listeners import LOOPBACK
from ottla.base.logs import LEVELS
from ottla.base.setting_types import LONG_MAX, not_blank, one_of, one_of_any_case
from ottla.base.settings import CLUSTER_WIDE, Boolean, Int, Items, Long, OptionalText, Password, Settings, Text


class ExtensionKeys(Settings):
    """Metrics endpoint, log files, observe-only modes, quotas of a whole broker, sockets."""

    ottla_authorizer_mode = Text(
        "enforcing",
        check=one_of("enforcing", "permissive"),
        note="What happens to operations that access rules deny: `enforcing` rejects them, `permissive` allows them "
        "and logs each denial to `kafka-authorizer.log`. No effect without authorizer.class.name.",
    )
    ottla_dynamic_config_allowed_paths = Items(
        note="Folders of files (key stores, keytabs, commands) to which settings that are changed over the wire may "
        "refer. Empty: such changes are rejected.",
    )
    ottla_metadata_accepted_loss = OptionalText(
        note="Starts a single broker although its metadata store is older than its log directories, as after a "
        "restore: the two transaction numbers of the error message. Partitions that are not in the store are "
        "listed and become `-stray`. Valid for one start, with this store and these log directories.",
    )
    ottla_metrics_port = Int(
        -1,
        at_least=-1,
        at_most=65_535,
        note="Port of the metrics endpoint (Prometheus and Jolokia over HTTP); 0 is any free one, -1 none.",
    )
    ottla_metrics_host = Text(
        LOOPBACK,
        check=not_blank,
        note="Address of the metrics endpoint. An address that is reachable from other machines requires a certificate "
        "and a password.",
    )
    ottla_metrics_username = OptionalText(note="User name for reading the metrics (HTTP Basic).")
    ottla_metrics_password = Password(note="Password of that user.")
    ottla_metrics_ssl_keystore_location = OptionalText(
        note="File with the key and certificate of the metrics endpoint (JKS, PKCS12 or PEM), which makes it HTTPS; "
        "read again when it changes."
    )
    ottla_metrics_ssl_keystore_password = Password(note="Password of that file.")
    ottla_metrics_ssl_key_password = Password(note="Password of the private key; by default the password of the file.")
    ottla_metrics_insecure = Boolean(
        False,
        note="Whether other machines may read the metrics without TLS or without a password; otherwise a broker with "
        "such an endpoint does not start.",
    )
    ottla_log_dir = OptionalText(
        note="Folder for log files (`server.log` and others); without it the broker logs only to standard error."
    )
    ottla_log_format = Text(
        "text",
        check=one_of("text", "json"),
        note="Format of log lines: Kafka's `text`, or `json` with the field names of Elastic Common Schema.",
    )
    ottla_log_level = Text("INFO", check=one_of_any_case(*LEVELS), note="Log level at the start.")
    ottla_log_file_max_bytes = Long(104_857_600, at_least=1024, note="Size at which a log file is rotated.")
    ottla_log_file_max_ms = Long(
        86_400_000, at_least=-1, note="Age at which a log file is rotated; -1: only at its maximum size."
    )
    ottla_log_files_kept = Int(10, at_least=0, note="Number of rotated log files of each kind that are kept.")
    ottla_quota_action = Text(
        "throttle",
        check=one_of("throttle", "reject"),
        mode=CLUSTER_WIDE,
        note="What happens to producers above the broker's quota, or above the quota of a topic without its own "
        "action: `throttle` delays them, `reject` rejects their records (POLICY_VIOLATION).",
    )
    ottla_quota_mode = Text(
        "enforce",
        check=one_of("enforce", "observe"),
        mode=CLUSTER_WIDE,
        note="Whether quotas are enforced: `enforce`, or `observe` to measure all clients without throttling.",
    )
    ottla_quota_fetch_bytes = Long(
        LONG_MAX,
        at_least=1,
        mode=CLUSTER_WIDE,
        note="Maximum number of bytes per second that all consumers of a broker get.",
    )
    ottla_quota_fetch_messages = Long(
        LONG_MAX,
        at_least=1,
        mode=CLUSTER_WIDE,
        note="Maximum number of records per second that all consumers of a broker get.",
    )
    ottla_quota_produce_bytes = Long(
        LONG_MAX,
        at_least=1,
        mode=CLUSTER_WIDE,
        note="Maximum number of bytes per second that a broker accepts from producers.",
    )
    ottla_quota_produce_messages = Long(
        LONG_MAX,
        at_least=1,
        mode=CLUSTER_WIDE,
        note="Maximum number of records per second that a broker accepts from producers.",
    )
    ottla_socket_congestion_control = Text(
        "",
        note="Congestion control of connections to clients and other brokers: `bbr`, `cubic` or another algorithm of "
        "the kernel; empty: the machine's default, but `reno` instead of `bbr` for connections within the "
        "machine. With `bbr`, lost packets reduce throughput little; it applies to connections with a full socket "
        "buffer, until the buffer has not been full for a minute.",
    )
    ottla_socket_retransmission_timeout_min_ms = Int(
        0,
        at_least=0,
        at_most=200,
        note="Minimum time, in addition to the round trip, after which TCP retransmits lost data if no later data is "
        "acknowledged; 0: the kernel's default, 200. Requires Linux 6.15.",
    )
    ottla_socket_user_timeout_ms = Int(
        0,
        at_least=0,
        note="Time without a packet from a client's machine after which its connection is closed; 0: the kernel's "
        "default, a quarter of an hour or more.",
    )
    ottla_socket_unsent_max_bytes = Int(
        -1,
        at_least=-1,
        note="Maximum number of unsent bytes in a socket (TCP_NOTSENT_LOWAT); -1: limited only by its buffer.",
    )
