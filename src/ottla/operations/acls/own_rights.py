"""Whether a change of rules would shut out whoever makes it. Pure.

A cluster tells nobody who he is, so it is read from the properties of the client. Where only the broker knows
(certificates, tickets, tokens), it may be anybody who has the right now.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from ottla.base.security import ANONYMOUS, WILDCARD, Operation
from ottla.operations.acls.wishes import CLUSTER, words_of
from ottla.security.acls import Acls
from ottla.security.authorizer import Authorizer
from ottla.security.client_principal import client_principal
from ottla.security.client_protocol import client_protocol
from ottla.security.jaas import JAAS_CONFIG
from ottla.security.sasl.client_logins import mechanism_of

NEEDED: Final = (Operation.ALTER, Operation.ALTER_CONFIGS)  # to change rules and users, and to change quotas
BY_NAME: Final = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")


class Caller:
    """Who is at work; None where his own properties do not tell it for certain."""

    def __init__(self, properties: Mapping[str, str]) -> None:
        is_login = client_protocol(properties).startswith("SASL_")
        self.mechanism = mechanism_of(properties) if is_login else None
        principal = client_principal(properties)
        is_token = "tokenauth" in properties.get(JAAS_CONFIG, "")  # then the name is that of the token
        is_certain = (self.mechanism in BY_NAME and not is_token) or principal == ANONYMOUS
        self.principal = principal if is_certain else None

    def __repr__(self) -> str:
        return f"<Caller {self.principal or 'unknown'}>"


def lost_rights(caller: Caller, before: Authorizer, after: Acls) -> list[str]:
    """What the caller may do to the cluster now and could not do any more, in words; empty if all is well."""
    then = Authorizer(after, before.super_users, allows_without_rules=before.allows_without_rules)
    rules = before.acls.get(CLUSTER, frozenset())
    hosts = {"" if entry.host == WILDCARD else entry.host for entry in rules} | {""}
    may_be = [caller.principal] if caller.principal is not None else sorted({entry.principal for entry in rules})
    found = []
    for principal in may_be:
        for operation in NEEDED:
            questions = [(principal, host, operation, *CLUSTER[:2]) for host in hosts]
            if any(before.explain(*each).is_allowed and not then.explain(*each).is_allowed for each in questions):
                found.append(f"{principal} may {words_of(operation)} the cluster")
    return found
