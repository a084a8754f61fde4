"""Why a login fails: what brokers and clients say about it, of all makes, and what that means.  Pure.

The words of Kerberos' own errors are the same everywhere, since they come from the protocol: MIT's library, Java and
librdkafka all pass them on.
"""

from __future__ import annotations

from typing import NamedTuple

from ottla.security.kerberos_faults import (
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
    Fault,
)

LOGIN_CASE = "F10"


class Hint(NamedTuple):
    """A reason, and the words by which it is recognised."""

    fault: Fault
    signs: tuple[str, ...]


MECHANISM = Fault(
    "mechanism",
    "the client logs in by another mechanism than the listener offers",
    "set sasl.mechanism of the client to one of the listener's sasl.enabled.mechanisms",
)
WRONG_PASSWORD = Fault(
    "password",
    "the user does not exist, or has another password",
    "compare name and password; ottla users, or kafka-configs.sh --describe --entity-type users, lists SCRAM users; "
    "those of PLAIN stand in the listener's JAAS settings",
)
NO_LOGIN = Fault(
    "protocol",
    "the listener asks for no login, or the client tries none at one that does",
    "compare security.protocol of the client with listener.security.protocol.map of the broker",
)
NO_SECTION = Fault(
    "jaas",
    "the client has no login data",
    "set sasl.jaas.config, or name a file: KAFKA_OPTS=-Djava.security.auth.login.config=jaas.conf",
)

# The first whose words are in a line counts: what is more special stands before what is less.
HINTS = (
    Hint(CLOCK, (CLOCK.cause, "Clock skew too great", "Ticket not yet valid")),
    Hint(EXPIRED, (EXPIRED.cause, "Ticket expired", "The referenced credential has expired")),
    Hint(KVNO, (KVNO.cause, "kvno", "Specified version of key is not available")),
    Hint(STALE_TICKET, (STALE_TICKET.cause, "Cannot decrypt ticket", "Integrity check on decrypted field failed")),
    Hint(OTHER_SERVICE, (OTHER_SERVICE.cause, "The ticket isn't for us")),
    Hint(
        SERVICE,
        (
            SERVICE.cause,
            "Server not found in Kerberos database",
            "No serviceName defined",
            "LOOKING_UP_SERVER",
        ),
    ),
    Hint(
        UNKNOWN_CLIENT,
        (UNKNOWN_CLIENT.cause, "Client not found in Kerberos database", "not found in Kerberos database"),
    ),
    Hint(
        NOT_IN_KEYTAB,
        (
            NOT_IN_KEYTAB.cause,
            "No key table entry",
            "Unable to obtain password from user",
            "Cannot find key of appropriate type",
        ),
    ),
    Hint(BAD_KEYTAB, (BAD_KEYTAB.cause, "Unsupported key table format")),
    Hint(NO_KEYTAB, (NO_KEYTAB.cause, "Key table file", "Could not login: the client is being asked for a password")),
    Hint(
        PASSWORD,
        (PASSWORD.cause, "Pre-authentication information was invalid", "Preauthentication failed", "Checksum failed"),
    ),
    Hint(
        NO_TICKET,
        (
            NO_TICKET.cause,
            "Failed to find any Kerberos tgt",
            "No Kerberos credentials available",
            "No credentials cache",
        ),
    ),
    Hint(NO_KDC, (NO_KDC.cause, "Cannot contact any KDC", "Cannot locate KDC", "Cannot get kdc for realm")),
    Hint(CIPHERS, (CIPHERS.cause, "KDC has no support for encryption type")),
    Hint(
        MECHANISM,
        (
            MECHANISM.cause,
            "UNSUPPORTED_SASL_MECHANISM",
            "UnsupportedSaslMechanismException",
            "does not offer the SASL mechanism",
            "not enabled in the server",
        ),
    ),
    Hint(NO_LOGIN, (NO_LOGIN.cause, "ILLEGAL_SASL_STATE", "IllegalSaslStateException", "asks for no login")),
    Hint(NO_SECTION, (NO_SECTION.cause, "Could not find a 'KafkaClient' entry", "Unable to locate Jaas")),
    Hint(
        WRONG_PASSWORD,
        (
            WRONG_PASSWORD.cause,
            "Invalid username or password",
            "or nobody is called",
            "invalid credentials with SASL mechanism SCRAM",
            "invalid credentials with SASL mechanism PLAIN",
        ),
    ),
)


def login_fault(text: str) -> Fault | None:
    """What is wrong with a login, of a line that tells of it; None if the line does not say."""
    lower = text.lower()
    for hint in HINTS:
        if any(sign.lower() in lower for sign in hint.signs):
            return hint.fault
    return None
