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
        note="What becomes of what access rules deny: `enforcing` refuses it, `permissive` allows it and writes to "
        "`kafka-authorizer.log` what would be refused. Without authorizer.class.name it has no effect.",
    )
    ottla_dynamic_config_allowed_paths = Items(
        note="Folders of files that settings may name which are changed over the wire: key stores, keytabs, commands. "
        "Empty: such a change is refused.",
    )
    ottla_metadata_accepted_loss = OptionalText(
        note="Starts a broker that is alone although its metadata store is older than its log folders, as after a "
        "restore: the two numbers of transactions that the refusal names. Partitions that the store does not know "
        "become `-stray`, and are listed first. It counts for this store and these folders alone, so for one start.",
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
        note="Address of the metrics endpoint. One that other machines can reach needs a certificate and a password.",
    )
    ottla_metrics_username = OptionalText(note="User name for reading the metrics (HTTP Basic).")
    ottla_metrics_password = Password(note="Password that goes with that name.")
    ottla_metrics_ssl_keystore_location = OptionalText(
        note="File with the key and certificate of the metrics endpoint (JKS, PKCS12 or PEM), which makes it HTTPS; "
        "read again when it changes."
    )
    ottla_metrics_ssl_keystore_password = Password(note="Secret of that file.")
    ottla_metrics_ssl_key_password = Password(note="Secret of the private key in it; without it, that of the file.")
    ottla_metrics_insecure = Boolean(
        False,
        note="Whether other machines may read the metrics without TLS or without a password: unless it is set, a "
        "broker does not start so.",
    )
    ottla_log_dir = OptionalText(
        note="Folder for log files (`server.log` and others); without it the log goes to standard error alone."
    )
    ottla_log_format = Text(
        "text",
        check=one_of("text", "json"),
        note="How log lines look: `text` as Kafka's, or `json` with the field names of Elastic Common Schema.",
    )
    ottla_log_level = Text(
        "INFO", check=one_of_any_case(*LEVELS), note="What is logged at the start: this level and graver ones."
    )
    ottla_log_file_max_bytes = Long(
        104_857_600, at_least=1024, note="Size at which a log file is put aside and a new one begun."
    )
    ottla_log_file_max_ms = Long(
        86_400_000, at_least=-1, note="Age at which a log file is put aside; -1: only its size counts."
    )
    ottla_log_files_kept = Int(10, at_least=0, note="Log files of a kind that are kept when they are put aside.")
    ottla_quota_action = Text(
        "throttle",
        check=one_of("throttle", "reject"),
        mode=CLUSTER_WIDE,
        note="What becomes of producers that are together faster than the broker's quota, or than that of a topic "
        "which says nothing else: `throttle` holds them up, `reject` refuses their records (POLICY_VIOLATION) and "
        "stores nothing.",
    )
    ottla_quota_mode = Text(
        "enforce",
        check=one_of("enforce", "observe"),
        mode=CLUSTER_WIDE,
        note="Whether quotas count: `enforce`, or `observe` to measure every client and throttle none.",
    )
    ottla_quota_fetch_bytes = Long(
        LONG_MAX, at_least=1, mode=CLUSTER_WIDE, note="Most bytes that all consumers of a broker get in a second."
    )
    ottla_quota_fetch_messages = Long(
        LONG_MAX, at_least=1, mode=CLUSTER_WIDE, note="Most records that all consumers of a broker get in a second."
    )
    ottla_quota_produce_bytes = Long(
        LONG_MAX, at_least=1, mode=CLUSTER_WIDE, note="Most bytes that a broker takes from producers in a second."
    )
    ottla_quota_produce_messages = Long(
        LONG_MAX, at_least=1, mode=CLUSTER_WIDE, note="Most records that a broker takes from producers in a second."
    )
    ottla_socket_congestion_control = Text(
        "",
        note="How the kernel decides how fast it sends to clients and other brokers: `bbr`, `cubic` or what else it "
        "has; empty: as the machine is set up, and `reno` within the machine where that would be `bbr`. With `bbr` "
        "lost packets cost little; it applies to connections with a full socket buffer, until that was not so "
        "for a minute.",
    )
    ottla_socket_retransmission_timeout_min_ms = Int(
        0,
        at_least=0,
        at_most=200,
        note="How long TCP waits at least, on top of the round trip, before it sends again what was lost with nothing "
        "behind it; 0: as the kernel has it, which is 200. Needs Linux 6.15.",
    )
    ottla_socket_user_timeout_ms = Int(
        0,
        at_least=0,
        note="A client from whose machine no packet comes for this long is gone: its connection is closed; 0: after as "
        "long as the kernel takes, a quarter of an hour or more.",
    )
    ottla_socket_unsent_max_bytes = Int(
        -1,
        at_least=-1,
        note="Most bytes that a socket holds beyond those that are on their way (TCP_NOTSENT_LOWAT); -1: as many as "
        "its buffer takes.",
    )
