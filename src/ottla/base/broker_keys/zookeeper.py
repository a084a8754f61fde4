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
        note="ZooKeeper of the cluster: host:port[,host:port ...][/chroot]; without it, this is a single broker.",
    )
    zookeeper_connection_timeout_ms = OptionalInt(
        at_least=1,
        is_internal=True,
        note="Time for which a start waits for ZooKeeper; by default zookeeper.session.timeout.ms.",
    )
    zookeeper_session_timeout_ms = Int(
        SESSION_MS_DEFAULT,
        at_least=1,
        is_internal=True,
        note="Time without a heartbeat after which ZooKeeper expires the session of a broker. Kafka's default is "
        "18000.",
    )
    zookeeper_max_in_flight_requests = Int(
        10,
        at_least=1,
        is_internal=True,
        unused=BOUNDED_PIPELINE,
        note="Maximum number of requests to ZooKeeper in flight.",
    )
    zookeeper_set_acl = Boolean(
        False,
        is_internal=True,
        note="Whether new nodes in ZooKeeper belong to their creator; others may only read nodes without secrets.",
    )
    zookeeper_ssl_client_enable = Boolean(False, is_internal=True, note="Whether connections to ZooKeeper use TLS.")
    zookeeper_clientCnxnSocket = OptionalText(  # noqa: N815 (Kafka's spelling)
        is_internal=True, unused=SINGLE_CLIENT_SOCKET, note="Java class for TLS connections to ZooKeeper."
    )
    zookeeper_ssl_keystore_location = OptionalText(
        is_internal=True, note="File with a key and certificate for ZooKeeper, if it requires one: PEM, PKCS12 or JKS."
    )
    zookeeper_ssl_keystore_password = Password(is_internal=True, note="Password of that file.")
    zookeeper_ssl_keystore_type = OptionalText(is_internal=True, unused=DETECTED_FORMAT, note="Format of that file.")
    zookeeper_ssl_truststore_location = OptionalText(
        is_internal=True, note="File with trusted certificates for ZooKeeper; by default those of the system."
    )
    zookeeper_ssl_truststore_password = Password(is_internal=True, note="Password of that file.")
    zookeeper_ssl_truststore_type = OptionalText(is_internal=True, unused=DETECTED_FORMAT, note="Format of that file.")
    zookeeper_ssl_protocol = OptionalText(
        is_internal=True,
        note="Version of TLS, if zookeeper.ssl.enabled.protocols is empty; by default TLSv1.2 and 1.3.",
    )
    zookeeper_ssl_enabled_protocols = Items(is_internal=True, note="Allowed versions of TLS.")
    zookeeper_ssl_cipher_suites = Items(
        is_internal=True, note="Allowed cipher suites, under Java's names; empty: all secure ones."
    )
    zookeeper_ssl_endpoint_identification_algorithm = Text(
        "HTTPS",
        is_internal=True,
        note="How the host name in ZooKeeper's certificate is verified; empty: not verified.",
    )
    zookeeper_ssl_crl_enable = Boolean(
        False,
        is_internal=True,
        note="Whether certificate revocation lists are checked; not supported: with true the broker does not start.",
    )
    zookeeper_ssl_ocsp_enable = Boolean(
        False,
        is_internal=True,
        note="Whether certificates are checked with OCSP; not supported: with true the broker does not start.",
    )
    broker_id_generation_enable = Boolean(
        True,
        is_internal=True,
        note="Whether ZooKeeper assigns an id above reserved.broker.max.id to a broker without one.",
    )
    reserved_broker_max_id = Int(
        1000, at_least=0, is_internal=True, note="Maximum id that can be set in a broker's settings."
    )
    controlled_shutdown_max_retries = Int(
        3, at_least=0, is_internal=True, note="Number of retries of a stopping broker to transfer its leadership."
    )
    controlled_shutdown_retry_backoff_ms = Long(
        5000, at_least=0, is_internal=True, note="Time between two such retries."
    )
    password_encoder_secret = Password(
        is_internal=True,
        note="Secret that encrypts passwords in this broker's settings that are changed at run time. Without it they "
        "are stored unencrypted, which with ZooKeeper requires zookeeper.set.acl=true.",
    )
    password_encoder_old_secret = Password(
        is_internal=True,
        note="The previous secret: passwords that it encrypted are encrypted with the new one when the broker starts.",
    )
    password_encoder_keyfactory_algorithm = OptionalText(
        check=lambda name, value: one_of(*HASHES)(name, value) if value is not None else None,
        is_internal=True,
        note="Function that derives the key from that secret; by default PBKDF2WithHmacSHA512.",
    )
    password_encoder_cipher_algorithm = Text(
        CBC, check=one_of(*CIPHERS), is_internal=True, note="Cipher that encrypts the passwords."
    )
    password_encoder_key_length = Int(
        128,
        check=key_bits_problem,
        is_internal=True,
        note="Length in bits of the key that encrypts the passwords.",
    )
    password_encoder_iterations = Int(
        4096,
        at_least=ITERATIONS_MIN,
        at_most=ITERATIONS_MAX,
        is_internal=True,
        note="Number of hash iterations that derive the key from the secret.",
    )


def encoding_of(settings: ZooKeeperKeys) -> Encoding:
    """How this broker encrypts the passwords that it stores."""
    return Encoding(
        settings.password_encoder_keyfactory_algorithm or Encoding().key_factory,
        settings.password_encoder_cipher_algorithm,
        settings.password_encoder_key_length,
        settings.password_encoder_iterations,
    )
