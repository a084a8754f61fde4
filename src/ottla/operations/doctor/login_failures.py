"""Causes of failed logins, recognised by the messages of brokers and clients of any vendor. Pure.

Kerberos error texts are the same everywhere because they come from the protocol: MIT's library, Java and librdkafka all
pass them on.
"""

from __future__ import annotations

from typing import NamedTuple

from ottla.security.kerberos import (
    BAD_KEYTAB,
    CIPHERS,
    CLOCK,
    EXPIRED,
    KVNO,
    NO_KDC,
    NO_KEYTAB,
    NO_TICKET,
    NOT_IN_KEYTAB,
    OTHER_SERVICE,
    PASSWORD,
    SERVICE,
    STALE_TICKET,
    UNKNOWN_CLIENT,
    KerberosFault,
)

LOGIN_CASE = "F10"


class LoginFailurePattern(NamedTuple):
    """A cause, and the texts by which it is recognised."""

    fault: KerberosFault
    patterns: tuple[str, ...]


MECHANISM = KerberosFault(
    "mechanism",
    "the client logs in by another mechanism than the listener offers",
    "set sasl.mechanism of the client to one of the listener's sasl.enabled.mechanisms",
)
WRONG_PASSWORD = KerberosFault(
    "password",
    "the user does not exist, or has another password",
    "compare name and password; ottla users, or kafka-configs.sh --describe --entity-type users, lists SCRAM users; "
    "PLAIN users are in the listener's JAAS settings",
)
NO_LOGIN = KerberosFault(
    "protocol",
    "the listener requires no login, or the client attempts none at one that does",
    "compare security.protocol of the client with listener.security.protocol.map of the broker",
)
NO_SECTION = KerberosFault(
    "jaas",
    "the client has no login data",
    "set sasl.jaas.config, or name a file: KAFKA_OPTS=-Djava.security.auth.login.config=jaas.conf",
)

# The first match counts, so specific texts come before general ones.
LOGIN_FAILURE_PATTERNS = (
    LoginFailurePattern(CLOCK, (CLOCK.cause, "Clock skew too great", "Ticket not yet valid")),
    LoginFailurePattern(EXPIRED, (EXPIRED.cause, "Ticket expired", "The referenced credential has expired")),
    LoginFailurePattern(KVNO, (KVNO.cause, "kvno", "Specified version of key is not available")),
    LoginFailurePattern(
        STALE_TICKET, (STALE_TICKET.cause, "Cannot decrypt ticket", "Integrity check on decrypted field failed")
    ),
    LoginFailurePattern(OTHER_SERVICE, (OTHER_SERVICE.cause, "The ticket isn't for us")),
    LoginFailurePattern(
        SERVICE,
        (
            SERVICE.cause,
            "Server not found in Kerberos database",
            "No serviceName defined",
            "LOOKING_UP_SERVER",
        ),
    ),
    LoginFailurePattern(
        UNKNOWN_CLIENT,
        (UNKNOWN_CLIENT.cause, "Client not found in Kerberos database", "not found in Kerberos database"),
    ),
    LoginFailurePattern(
        NOT_IN_KEYTAB,
        (
            NOT_IN_KEYTAB.cause,
            "No key table entry",
            "Unable to obtain password from user",
            "Cannot find key of appropriate type",
        ),
    ),
    LoginFailurePattern(BAD_KEYTAB, (BAD_KEYTAB.cause, "Unsupported key table format")),
    LoginFailurePattern(
        NO_KEYTAB, (NO_KEYTAB.cause, "Key table file", "Could not login: the client is being asked for a password")
    ),
    LoginFailurePattern(
        PASSWORD,
        (PASSWORD.cause, "Pre-authentication information was invalid", "Preauthentication failed", "Checksum failed"),
    ),
    LoginFailurePattern(
        NO_TICKET,
        (
            NO_TICKET.cause,
            "Failed to find any Kerberos tgt",
            "No Kerberos credentials available",
            "No credentials cache",
        ),
    ),
    LoginFailurePattern(
        NO_KDC, (NO_KDC.cause, "Cannot contact any KDC", "Cannot locate KDC", "Cannot get kdc for realm")
    ),
    LoginFailurePattern(CIPHERS, (CIPHERS.cause, "KDC has no support for encryption type")),
    LoginFailurePattern(
        MECHANISM,
        (
            MECHANISM.cause,
            "UNSUPPORTED_SASL_MECHANISM",
            "UnsupportedSaslMechanismException",
            "does not offer the SASL mechanism",
            "not enabled in the server",
        ),
    ),
    LoginFailurePattern(
        NO_LOGIN, (NO_LOGIN.cause, "ILLEGAL_SASL_STATE", "IllegalSaslStateException", "asks for no login")
    ),
    LoginFailurePattern(
        NO_SECTION, (NO_SECTION.cause, "Could not find a 'KafkaClient' entry", "Unable to locate Jaas")
    ),
    LoginFailurePattern(
        WRONG_PASSWORD,
        (
            WRONG_PASSWORD.cause,
            "Invalid username or password",
            "or unknown user",
            "invalid credentials with SASL mechanism SCRAM",
            "invalid credentials with SASL mechanism PLAIN",
        ),
    ),
)


def find_login_fault(text: str) -> KerberosFault | None:
    """The cause of a failed login named in a line; None if the line names none."""
    lower = text.lower()
    for hint in LOGIN_FAILURE_PATTERNS:
        if any(sign.lower() in lower for sign in hint.patterns):
            return hint.fault
    return None
