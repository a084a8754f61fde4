"""SASL, Kerberos, delegation tokens, authorization."""

from __future__ import annotations

from typing import Final

from ottla.base.audit_events import events_problem
from ottla.base.broker_keys.unused import DETECTED_FORMAT, NO_JAVA, NO_PROVIDERS, NO_SASL
from ottla.base.setting_types import invalid_value, one_of, one_of_any_case
from ottla.base.settings import (
    CLUSTER_WIDE,
    PER_BROKER,
    PER_LISTENER,
    Boolean,
    ClassName,
    Double,
    Int,
    Items,
    Long,
    OptionalInt,
    OptionalText,
    Password,
    Settings,
    Short,
    Text,
)

AUTHORIZERS: Final = (  # of Kafka 2.8 and later, of 2.4 and later, and of older ones
    "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "kafka.security.authorizer.AclAuthorizer",
    "kafka.security.auth.SimpleAclAuthorizer",
)


def known_authorizer(name: str, value: object) -> str | None:
    if not str(value).strip() or value in AUTHORIZERS:
        return None
    return invalid_value(name, value, f"There is no JVM to load classes; known are {', '.join(AUTHORIZERS)}")


def principals_problem(name: str, value: object) -> str | None:
    for principal in parse_principals(str(value)):
        kind, separator, user = principal.partition(":")
        if not kind or not separator or not user:
            sentence = f"expected a string in format principalType:principalName but got {principal}"
            return invalid_value(name, value, sentence)
    return None


def parse_principals(text: str) -> tuple[str, ...]:
    return tuple(filter(None, (item.strip() for item in text.split(";"))))


class SecurityKeys(Settings):
    """SASL, Kerberos, delegation tokens, authorization."""

    authorizer_class_name = Text(
        "",
        check=known_authorizer,
        note="Enables access rights: the class name of one of Kafka's own authorizers, current or old. Empty: every "
        "client may do everything.",
    )
    super_users = Text(
        "",
        check=principals_problem,
        is_internal=True,
        note="Principals with all rights, regardless of the rules, such as User:admin, separated by semicolons.",
    )
    allow_everyone_if_no_acl_found = Boolean(
        False,
        is_internal=True,
        note="Whether all operations on a resource without access rules are allowed.",
    )
    connection_failed_authentication_delay_ms = Int(
        100, at_least=0, note="Wait before a connection is closed after a failed login."
    )
    connections_max_reauth_ms = Long(
        0, note="Maximum time for which a SASL login is valid before the client must repeat it; 0 is forever."
    )
    delegation_token_expiry_check_interval_ms = Long(
        3_600_000, at_least=1, note="Interval for removing expired tokens."
    )
    delegation_token_expiry_time_ms = Long(
        86_400_000, at_least=1, note="Time for which a token is valid unless it is renewed."
    )
    delegation_token_max_lifetime_ms = Long(
        604_800_000, at_least=1, note="Maximum lifetime of a token, including renewals."
    )
    delegation_token_secret_key = Password(
        note="Secret from which the passwords of delegation tokens are computed; the same on all brokers. Without it, "
        "delegation tokens are disabled."
    )
    sasl_enabled_mechanisms = Items(("GSSAPI",), mode=PER_BROKER, note="SASL mechanisms that clients may use.")
    sasl_jaas_config = Password(mode=PER_BROKER, note="Login module and options of a listener in JAAS form.")
    sasl_kerberos_kinit_cmd = Text(
        "/usr/bin/kinit", mode=PER_BROKER, note="Program that renews the tickets of a cache."
    )
    sasl_kerberos_min_time_before_relogin = Long(
        60_000, mode=PER_BROKER, note="Minimum time between two Kerberos logins."
    )
    sasl_kerberos_principal_to_local_rules = Items(
        ("DEFAULT",), mode=PER_BROKER, note="Rules that map Kerberos principals to short names."
    )
    sasl_kerberos_service_name = OptionalText(mode=PER_BROKER, note="Kerberos service name of the brokers.")
    sasl_kerberos_ticket_renew_jitter = Double(
        0.05, mode=PER_BROKER, note="Random fraction by which ticket renewal is shifted."
    )
    sasl_kerberos_ticket_renew_window_factor = Double(
        0.8, mode=PER_BROKER, note="Fraction of a ticket's lifetime after which it is renewed."
    )
    sasl_login_connect_timeout_ms = OptionalInt(note="Timeout for connecting to an external login server.")
    sasl_login_read_timeout_ms = OptionalInt(note="Timeout for a response of an external login server.")
    sasl_login_refresh_window_factor = Double(
        0.8, mode=PER_BROKER, note="Fraction of a login's lifetime after which it is renewed."
    )
    sasl_mechanism_inter_broker_protocol = Text("GSSAPI", mode=PER_BROKER, note="SASL mechanism between brokers.")
    sasl_server_callback_handler_class = ClassName(
        note="Class that verifies login data: only Kafka's own classes for OAUTHBEARER are supported."
    )
    sasl_server_max_receive_size = Int(524_288, note="Maximum size of a request before a connection is authenticated.")


class OAuthKeys(Settings):
    """SASL/OAUTHBEARER."""

    sasl_oauthbearer_assertion_algorithm = Text(
        "RS256",
        check=one_of_any_case("ES256", "RS256"),
        unused=NO_SASL,
        note="Algorithm that signs the assertion of a client's login.",
    )
    sasl_oauthbearer_client_credentials_client_id = OptionalText(note="Client id for the login server.")
    sasl_oauthbearer_client_credentials_client_secret = Password(note="Secret of that client id.")
    sasl_oauthbearer_clock_skew_seconds = Int(
        30,
        note="Tolerated clock difference when the times of a token are checked.",
    )
    sasl_oauthbearer_expected_audience = Items(note="Audiences of which a token must contain one.")
    sasl_oauthbearer_expected_issuer = OptionalText(note="Required issuer of a token.")
    sasl_oauthbearer_jwks_endpoint_refresh_ms = Long(3_600_000, note="Interval for fetching the issuer's keys.")
    sasl_oauthbearer_jwks_endpoint_retry_backoff_max_ms = Long(
        10_000, note="Maximum wait before a failed fetch of keys is retried."
    )
    sasl_oauthbearer_jwks_endpoint_retry_backoff_ms = Long(
        100, note="Initial wait before a failed fetch of keys is retried."
    )
    sasl_oauthbearer_jwks_endpoint_url = OptionalText(note="URL of the issuer's keys.")
    sasl_oauthbearer_scope = OptionalText(note="Requested scope.")
    sasl_oauthbearer_scope_claim_name = Text("scope", note="Claim that contains the scope.")
    sasl_oauthbearer_sub_claim_name = Text("sub", note="Claim that contains the subject.")
    sasl_oauthbearer_token_endpoint_url = OptionalText(note="URL of the token endpoint.")


class TlsKeys(Settings):
    """Certificates and protocols of TLS listeners."""

    ssl_allow_dn_changes = Boolean(False, note="Whether a renewed certificate may have another distinguished name.")
    ssl_allow_san_changes = Boolean(False, note="Whether a renewed certificate may omit alternative names.")
    ssl_cipher_suites = Items(
        mode=PER_BROKER, note="Allowed cipher suites, under Java's names; empty: all secure ones."
    )
    ssl_client_auth = Text(
        "none",
        check=one_of("required", "requested", "none"),
        mode=PER_BROKER,
        note="Whether clients must present a certificate: required, requested or none.",
    )
    ssl_enabled_protocols = Items(("TLSv1.2", "TLSv1.3"), mode=PER_BROKER, note="Allowed versions of TLS.")
    ssl_endpoint_identification_algorithm = Text(
        "https",
        mode=PER_BROKER,
        note="How the host name in a server's certificate is verified; empty: not verified.",
    )
    ssl_engine_factory_class = ClassName(unused=NO_JAVA, mode=PER_LISTENER, note="Class that creates TLS engines.")
    ssl_key_password = Password(
        mode=PER_LISTENER, note="Password of the private key; by default the password of the key store."
    )
    ssl_keymanager_algorithm = Text(
        "SunX509", unused=NO_PROVIDERS, mode=PER_BROKER, note="Algorithm of the key manager."
    )
    ssl_keystore_certificate_chain = Password(mode=PER_LISTENER, note="Certificate chain as PEM text.")
    ssl_keystore_key = Password(mode=PER_LISTENER, note="Private key as PEM text.")
    ssl_keystore_location = OptionalText(
        mode=PER_LISTENER, note="File with the broker's key and certificate: JKS, PKCS12 or PEM."
    )
    ssl_keystore_password = Password(mode=PER_LISTENER, note="Password of that file.")
    ssl_keystore_type = Text(
        "JKS", unused=DETECTED_FORMAT, mode=PER_LISTENER, note="Format of that file: JKS, PKCS12 or PEM."
    )
    ssl_principal_mapping_rules = Text("DEFAULT", note="Rules that map the names of certificates to short names.")
    ssl_protocol = Text("TLSv1.3", mode=PER_BROKER, note="Highest version of TLS, if ssl.enabled.protocols is empty.")
    ssl_provider = OptionalText(unused=NO_PROVIDERS, mode=PER_BROKER, note="Java provider of TLS.")
    ssl_secure_random_implementation = OptionalText(
        unused=NO_PROVIDERS, mode=PER_BROKER, note="Source of random numbers for TLS."
    )
    ssl_trustmanager_algorithm = Text(
        "PKIX", unused=NO_PROVIDERS, mode=PER_BROKER, note="Algorithm of the trust manager."
    )
    ssl_truststore_certificates = Password(mode=PER_LISTENER, note="Trusted certificates as PEM text.")
    ssl_truststore_location = OptionalText(
        mode=PER_LISTENER, note="File with trusted certificates; by default those of the system."
    )
    ssl_truststore_password = Password(mode=PER_LISTENER, note="Password of that file.")
    ssl_truststore_type = Text(
        "JKS", unused=DETECTED_FORMAT, mode=PER_LISTENER, note="Format of that file: JKS, PKCS12 or PEM."
    )


class AuditKeys(Settings):
    """The audit trail."""

    ottla_audit_enable = Boolean(
        False,
        mode=CLUSTER_WIDE,
        note="Whether logins, denials and administrative changes are written to the topic `__ottla_audit`.",
    )
    ottla_audit_events = Items(
        ("*",),
        check=events_problem,
        mode=CLUSTER_WIDE,
        note="Recorded events: names and patterns such as `topic.*` ([all events](audit.md#events)).",
    )
    ottla_audit_exclude_principals = Text(
        "",
        check=principals_problem,
        mode=CLUSTER_WIDE,
        note="Principals whose events are not recorded, such as User:monitor, separated by semicolons.",
    )
    ottla_audit_topic_num_partitions = Int(
        1, at_least=1, note="Number of partitions of `__ottla_audit` when it is created."
    )
    ottla_audit_topic_replication_factor = Short(
        3, at_least=1, note="Replication factor of `__ottla_audit` when it is created; always 1 on a single broker."
    )
    ottla_audit_topic_retention_ms = Long(
        7_776_000_000, at_least=-1, note="Retention time of `__ottla_audit` when it is created; -1: forever."
    )
