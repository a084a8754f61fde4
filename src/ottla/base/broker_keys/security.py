"""SASL, Kerberos, delegation tokens, authorization."""

from __future__ import annotations

from typing import Final

from ottla.base.broker_keys.words import HIGH, LOW, NO_JAVA, NO_SASL, PER_BROKER
from ottla.base.setting_types import invalid_value
from ottla.base.settings import (
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
        importance=LOW,
        note="Switches access rights on: one of the names that Kafka's own authorizers have or had. Empty allows "
        "everything to everybody.",
    )
    super_users = Text(
        "",
        check=principals_problem,
        importance=LOW,
        is_internal=True,
        note="Who may do everything, whatever the rules say: principals such as User:admin, separated by semicolons.",
    )
    allow_everyone_if_no_acl_found = Boolean(
        False,
        importance=LOW,
        is_internal=True,
        note="Whether everybody may do everything to a resource that no access rule is about.",
    )
    connection_failed_authentication_delay_ms = Int(
        100, at_least=0, importance=LOW, note="Wait before a connection whose login failed is closed."
    )
    connections_max_reauth_ms = Long(
        0, note="Longest time a SASL login is good for before the client must repeat it; 0 is for ever."
    )
    delegation_token_expiry_check_interval_ms = Long(
        3_600_000, at_least=1, importance=LOW, note="Time between two searches for expired tokens."
    )
    delegation_token_expiry_time_ms = Long(
        86_400_000, at_least=1, note="How long a token is good for unless it is renewed."
    )
    delegation_token_max_lifetime_ms = Long(604_800_000, at_least=1, note="How long a token can be renewed.")
    delegation_token_secret_key = Password(
        note="Secret that makes the passwords of delegation tokens; the same on all brokers. Without it there are none."
    )
    principal_builder_class = ClassName(
        "org.apache.kafka.common.security.authenticator.DefaultKafkaPrincipalBuilder",
        unused=NO_JAVA,
        mode=PER_BROKER,
        note="Class that tells who a connection belongs to.",
    )
    sasl_client_callback_handler_class = ClassName(
        unused=NO_JAVA, note="Class that supplies the broker's own login data as a client."
    )
    sasl_enabled_mechanisms = Items(("GSSAPI",), mode=PER_BROKER, note="SASL mechanisms that clients may use.")
    sasl_jaas_config = Password(mode=PER_BROKER, note="Login module and options of a listener in JAAS form.")
    sasl_kerberos_kinit_cmd = Text(
        "/usr/bin/kinit", mode=PER_BROKER, note="Program that renews the tickets of a cache."
    )
    sasl_kerberos_min_time_before_relogin = Long(
        60_000, mode=PER_BROKER, note="Shortest time between two Kerberos logins."
    )
    sasl_kerberos_principal_to_local_rules = Items(
        ("DEFAULT",), mode=PER_BROKER, note="Rules that make short names of Kerberos principals."
    )
    sasl_kerberos_service_name = OptionalText(mode=PER_BROKER, note="Name that the brokers have in Kerberos.")
    sasl_kerberos_ticket_renew_jitter = Double(
        0.05, mode=PER_BROKER, note="Random share by which ticket renewal is moved."
    )
    sasl_kerberos_ticket_renew_window_factor = Double(
        0.8, mode=PER_BROKER, note="Share of a ticket's life after which it is renewed."
    )
    sasl_login_callback_handler_class = ClassName(unused=NO_JAVA, note="Class that supplies login data.")
    sasl_login_class = ClassName(unused=NO_JAVA, note="Class that does logins.")
    sasl_login_connect_timeout_ms = OptionalInt(importance=LOW, note="Time to connect to an external login server.")
    sasl_login_read_timeout_ms = OptionalInt(importance=LOW, note="Time to wait for an external login server's answer.")
    sasl_login_refresh_buffer_seconds = Short(
        300, unused=NO_SASL, mode=PER_BROKER, note="Time left of a login before which it is renewed."
    )
    sasl_login_refresh_min_period_seconds = Short(
        60, unused=NO_SASL, mode=PER_BROKER, note="Shortest time between two renewals."
    )
    sasl_login_refresh_window_factor = Double(
        0.8, mode=PER_BROKER, note="Share of a login's life after which it is renewed."
    )
    sasl_login_refresh_window_jitter = Double(
        0.05, unused=NO_SASL, mode=PER_BROKER, note="Random share by which that is moved."
    )
    sasl_login_retry_backoff_max_ms = Long(
        10_000, importance=LOW, unused=NO_SASL, note="Longest wait before a failed external login is tried again."
    )
    sasl_login_retry_backoff_ms = Long(
        100, importance=LOW, unused=NO_SASL, note="First wait before a failed external login is tried again."
    )
    sasl_mechanism_controller_protocol = Text(
        "GSSAPI", importance=HIGH, unused=NO_SASL, note="SASL mechanism between brokers and controllers."
    )
    sasl_mechanism_inter_broker_protocol = Text("GSSAPI", mode=PER_BROKER, note="SASL mechanism between brokers.")
    sasl_server_callback_handler_class = ClassName(
        note="Class that checks login data: only Kafka's own for OAUTHBEARER are known."
    )
    sasl_server_max_receive_size = Int(524_288, note="Largest request before a connection has logged in.")
    security_providers = OptionalText(importance=LOW, unused=NO_JAVA, note="Classes that supply security algorithms.")
