"""The ZooKeeper connection of a cluster, and broker ids. Kafka 4 has none of these keys: they are those of 3.9, and are
shown only if they are set.
"""

from __future__ import annotations

from typing import Final

from ottla.base.broker_keys.unused import BOUNDED_PIPELINE, DETECTED_FORMAT, SINGLE_CLIENT_SOCKET
from ottla.base.password_encoder import CBC, CIPHERS, HASHES, ITERATIONS_MAX, ITERATIONS_MIN, KEY_BITS, Encoding
from ottla.base.setting_types import invalid_value, one_of
from ottla.base.settings import (
    Boolean,
    Int,
    Items,
    Long,
    OptionalInt,
    OptionalText,
    Password,
    Settings,
    Text,
)
from ottla.base.zookeeper_connect import parse_connect

SESSION_MS_DEFAULT: Final = 6000  # Kafka's is 18,000: here a paused broker is replaced three times as fast


def connect_problem(name: str, value: object) -> str | None:
    """An empty value means no ZooKeeper, because templates leave the key empty."""
    try:
        if str(value).strip():
            parse_connect(str(value))
    except ValueError as problem:
        return invalid_value(name, value, str(problem))
    return None


def key_bits_problem(name: str, value: object) -> str | None:
    return None if value in KEY_BITS else invalid_value(name, value, f"Keys of AES have {KEY_BITS} bits")


class ConnectString(OptionalText):
    """A text of blanks is None, too."""

    def effective(self, settings: Settings) -> str | None:
        text = super().effective(settings)
        return (text or "").strip() or None


class ZooKeeperKeys(Settings):
    """How a broker of a cluster connects to ZooKeeper."""

    zookeeper_connect = ConnectString(
        check=connect_problem,
        is_internal=True,
        note="ZooKeeper of the cluster: host:port[,host:port ...][/chroot]; without it this broker is alone.",
    )
    zookeeper_connection_timeout_ms = OptionalInt(
        at_least=1,
        is_internal=True,
        note="Time a start waits for ZooKeeper; without it zookeeper.session.timeout.ms.",
    )
    zookeeper_session_timeout_ms = Int(
        SESSION_MS_DEFAULT,
        at_least=1,
        is_internal=True,
        note="Time without a sign of life after which ZooKeeper takes a broker for dead. Kafka's default is 18000.",
    )
    zookeeper_max_in_flight_requests = Int(
        10,
        at_least=1,
        is_internal=True,
        unused=BOUNDED_PIPELINE,
        note="Most requests to ZooKeeper that wait for their answers.",
    )
    zookeeper_set_acl = Boolean(
        False,
        is_internal=True,
        note="Whether nodes that are made in ZooKeeper belong to their creator; others read those without secrets.",
    )
    zookeeper_ssl_client_enable = Boolean(False, is_internal=True, note="Whether ZooKeeper is reached over TLS.")
    zookeeper_clientCnxnSocket = OptionalText(  # noqa: N815 (Kafka's spelling)
        is_internal=True, unused=SINGLE_CLIENT_SOCKET, note="Java class that speaks to ZooKeeper over TLS."
    )
    zookeeper_ssl_keystore_location = OptionalText(
        is_internal=True, note="File with a key and certificate for ZooKeeper, if it asks for one: PEM, PKCS12 or JKS."
    )
    zookeeper_ssl_keystore_password = Password(is_internal=True, note="Secret of that file.")
    zookeeper_ssl_keystore_type = OptionalText(is_internal=True, unused=DETECTED_FORMAT, note="Form of that file.")
    zookeeper_ssl_truststore_location = OptionalText(
        is_internal=True, note="File with the certificates that ZooKeeper is known by; without it, those of the system."
    )
    zookeeper_ssl_truststore_password = Password(is_internal=True, note="Secret of that file.")
    zookeeper_ssl_truststore_type = OptionalText(is_internal=True, unused=DETECTED_FORMAT, note="Form of that file.")
    zookeeper_ssl_protocol = OptionalText(
        is_internal=True,
        note="The one version of TLS, where zookeeper.ssl.enabled.protocols is empty; without both, TLSv1.2 and 1.3.",
    )
    zookeeper_ssl_enabled_protocols = Items(is_internal=True, note="Versions of TLS that may be used.")
    zookeeper_ssl_cipher_suites = Items(
        is_internal=True, note="Cipher suites that may be used, in Java's names; empty is all safe."
    )
    zookeeper_ssl_endpoint_identification_algorithm = Text(
        "HTTPS",
        is_internal=True,
        note="How the name in ZooKeeper's certificate is checked; empty is not at all.",
    )
    zookeeper_ssl_crl_enable = Boolean(
        False, is_internal=True, note="Asks for lists of revoked certificates: true stops the start."
    )
    zookeeper_ssl_ocsp_enable = Boolean(
        False, is_internal=True, note="Asks for OCSP about certificates: true stops the start."
    )
    broker_id_generation_enable = Boolean(
        True,
        is_internal=True,
        note="Whether a broker of a cluster that has no id gets one from ZooKeeper, above reserved.broker.max.id.",
    )
    reserved_broker_max_id = Int(
        1000, at_least=0, is_internal=True, note="Largest id that may be given to a broker by hand."
    )
    controlled_shutdown_max_retries = Int(
        3, at_least=0, is_internal=True, note="How often a stopping broker asks again that its leaders be moved."
    )
    controlled_shutdown_retry_backoff_ms = Long(
        5000, at_least=0, is_internal=True, note="Time between two such questions."
    )
    password_encoder_secret = Password(
        is_internal=True,
        note="Secret that encrypts the passwords among this broker's settings that are changed while it runs. Without "
        "it they are stored as they are, which a broker with ZooKeeper does only with zookeeper.set.acl=true.",
    )
    password_encoder_old_secret = Password(
        is_internal=True,
        note="The secret before: what it encrypted is read with it and encrypted anew when the broker starts.",
    )
    password_encoder_keyfactory_algorithm = OptionalText(
        check=lambda name, value: one_of(*HASHES)(name, value) if value is not None else None,
        is_internal=True,
        note="How a key is derived from that secret; without it PBKDF2WithHmacSHA512.",
    )
    password_encoder_cipher_algorithm = Text(
        CBC, check=one_of(*CIPHERS), is_internal=True, note="What encrypts the passwords."
    )
    password_encoder_key_length = Int(
        128,
        check=key_bits_problem,
        is_internal=True,
        note="Bits of the key that encrypts the passwords.",
    )
    password_encoder_iterations = Int(
        4096,
        at_least=ITERATIONS_MIN,
        at_most=ITERATIONS_MAX,
        is_internal=True,
        note="Rounds of a hash that derive the key from the secret.",
    )


def encoding_of(settings: ZooKeeperKeys) -> Encoding:
    """How this broker encrypts the passwords that it stores."""
    return Encoding(
        settings.password_encoder_keyfactory_algorithm or Encoding().key_factory,
        settings.password_encoder_cipher_algorithm,
        settings.password_encoder_key_length,
        settings.password_encoder_iterations,
    )
