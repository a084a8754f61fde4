"""Settings of single listeners: `listener.name.internal.max.connections=50`.

The listener's name is written small. Keys of SASL may have the name of a mechanism before them, written small too:
`listener.name.internal.plain.sasl.jaas.config`. All can be changed while the broker runs; those of SASL and TLS for
one broker only.
"""

from __future__ import annotations

from typing import Final, NamedTuple

PREFIX: Final = "listener.name."
CHANGEABLE: Final = frozenset({"max.connection.creation.rate", "max.connections", "num.network.threads"})

OF_SASL: Final = frozenset(
    {
        "connections.max.reauth.ms",
        "sasl.enabled.mechanisms",
        "sasl.jaas.config",
        "sasl.kerberos.kinit.cmd",
        "sasl.kerberos.min.time.before.relogin",
        "sasl.kerberos.principal.to.local.rules",
        "sasl.kerberos.service.name",
        "sasl.kerberos.ticket.renew.jitter",
        "sasl.kerberos.ticket.renew.window.factor",
        "sasl.server.max.receive.size",
    }
)
OF_TLS: Final = frozenset(
    {
        "ssl.allow.dn.changes",
        "ssl.allow.san.changes",
        "ssl.cipher.suites",
        "ssl.client.auth",
        "ssl.enabled.protocols",
        "ssl.endpoint.identification.algorithm",
        "ssl.key.password",
        "ssl.keystore.certificate.chain",
        "ssl.keystore.key",
        "ssl.keystore.location",
        "ssl.keystore.password",
        "ssl.principal.mapping.rules",
        "ssl.protocol",
        "ssl.truststore.certificates",
        "ssl.truststore.location",
        "ssl.truststore.password",
    }
)
MECHANISMS: Final = frozenset({"gssapi", "oauthbearer", "plain", "scram-sha-256", "scram-sha-512"})


class ListenerKey(NamedTuple):
    """A key of one listener, taken apart."""

    listener: str
    base: str


def split_listener_key(name: str) -> ListenerKey | None:
    """`listener.name.internal.max.connections` as ("internal", "max.connections"); None for any other key."""
    if not name.startswith(PREFIX):
        return None
    listener, dot, base = name.removeprefix(PREFIX).partition(".")
    return ListenerKey(listener, base) if dot and base else None


def without_mechanism(base: str) -> str:
    """`plain.sasl.jaas.config` as `sasl.jaas.config`."""
    mechanism, _, rest = base.partition(".")
    return rest if mechanism in MECHANISMS else base


def acts_on_listener(base: str) -> bool:
    """Whether this key counts for one listener."""
    return base in CHANGEABLE or without_mechanism(base) in OF_SASL or base in OF_TLS


def listener_key(listener: str, base: str) -> str:
    return f"{PREFIX}{listener.lower()}.{base}"
