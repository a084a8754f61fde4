"""Whether a change of rules would shut out whoever makes it. Pure.

A cluster tells nobody who he is, so it is read from the properties of the client. Where only the broker knows
(certificates, tickets, tokens), it may be anybody who has the right now.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from ottla.base.security import ANONYMOUS, SEPARATOR, WILDCARD, Operation
from ottla.cli.acls.wishes import CLUSTER, words_of
from ottla.security.acls import Acls
from ottla.security.authorizer import Authorizer
from ottla.security.client_protocol import client_protocol
from ottla.security.jaas import client_module
from ottla.security.sasl.client_logins import ClientParts, mechanism_of

NEEDED: Final = (Operation.ALTER, Operation.ALTER_CONFIGS)  # to change rules and users, and to change quotas
BY_NAME: Final = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")


class Caller:
    """Who is at work, as far as his own properties tell: None where they do not."""

    def __init__(self, properties: Mapping[str, str]) -> None:
        self.principal: str | None = None
        self.mechanism: str | None = None
        protocol = client_protocol(properties)
        if protocol.startswith("SASL_"):
            self.mechanism = mechanism_of(properties)
            parts = ClientParts(self.mechanism, properties, client_module(properties, self.mechanism))
            is_token = parts.option("tokenauth") == "true"
            name = parts.option("username", "sasl.username")
            if self.mechanism in BY_NAME and name is not None and not is_token:
                self.principal = f"User{SEPARATOR}{name}"
        elif protocol == "PLAINTEXT" or not any("keystore" in key for key in properties):
            self.principal = ANONYMOUS

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
