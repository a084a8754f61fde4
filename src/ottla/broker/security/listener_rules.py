"""What settings and JAAS say about the logins of each listener.

Everything is read when the broker starts: what is missing or damaged stops it, with one line that names the place.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any, Final, NamedTuple

from ottla.base.broker_settings import BrokerSettings
from ottla.base.clock import Clock
from ottla.base.listener_keys import listener_key
from ottla.base.listeners import Listener
from ottla.broker.security.logins import ListenerRules, Mechanism
from ottla.security.jaas import (
    JAAS_CONFIG,
    JaasError,
    JaasMissingError,
    LoginModule,
    ServerLogins,
    named_file,
    read_sections,
)
from ottla.security.sasl.mechanisms import SERVERS, ServerParts
from ottla.security.sasl.scram import Credentials
from ottla.security.scram import HASHES

WITHOUT_JAAS: Final = frozenset({*HASHES, "OAUTHBEARER"})


def listener_rules(
    settings: BrokerSettings, environment: Mapping[str, str], credentials: Credentials, clock: Clock
) -> dict[str, ListenerRules]:
    """The rules of every listener that asks for a login; JaasError tells what is wrong with them."""
    names = [listener.name for listener in settings.listeners if listener.protocol.startswith("SASL_")]
    if not names:
        return {}
    reading = _Reading(settings, server_logins(settings, environment), credentials, clock)
    return {name: reading.rules(name) for name in names}


def server_logins(settings: BrokerSettings, environment: Mapping[str, str]) -> ServerLogins:
    values = {key: text for key, text in settings.texts.items() if key.endswith(f".{JAAS_CONFIG}")}
    path = named_file(environment)
    return ServerLogins(values, path, read_sections(path) if path is not None else {})


def value_of(settings: BrokerSettings, listener: str, mechanism: str, base: str) -> Any:
    """A setting of a mechanism on a listener, else of the listener, else of the broker."""
    key = settings.keys[base]
    own = listener_key(listener, f"{mechanism.lower()}.{base}")
    return key.value(settings.texts[own]) if own in settings.texts else settings.of_listener(listener, base)


class _Reading(NamedTuple):
    """What rules are made of."""

    settings: BrokerSettings
    logins: ServerLogins
    credentials: Credentials
    clock: Clock

    def rules(self, listener: str) -> ListenerRules:
        names = self.settings.of_listener(listener, "sasl.enabled.mechanisms")
        if not names:
            raise JaasError(f"listener {listener} asks for a login, and sasl.enabled.mechanisms names no mechanism")
        return ListenerRules(
            {name: self._mechanism(listener, name) for name in names},
            self.settings.of_listener(listener, "sasl.server.max.receive.size"),
            self.settings.connection_failed_authentication_delay_ms,
        )

    def _mechanism(self, listener: str, name: str) -> Mechanism:
        make = SERVERS.get(name)
        if make is None:
            raise JaasError(
                f"listener {listener}: sasl.enabled.mechanisms names {name}; there are {', '.join(sorted(SERVERS))}"
            )
        setting = partial(value_of, self.settings, listener, name)
        parts = ServerParts(listener, name, self._module(listener, name), setting, self.credentials, self.clock)
        return Mechanism(make(parts), setting("connections.max.reauth.ms"))

    def _module(self, listener: str, mechanism: str) -> LoginModule | None:
        """Only a broker that logs in itself needs a name for some mechanisms: the users are known elsewhere."""
        try:
            return self.logins.module_of(listener, mechanism)
        except JaasMissingError:
            if mechanism in WITHOUT_JAAS:
                return None
            raise


def own_listener(settings: BrokerSettings) -> str | None:
    """The listener of the brokers, if clients have others."""
    listener = inter_broker_listener(settings)
    return listener.name if listener is not None and len(settings.listeners) > 1 else None


def inter_broker_listener(settings: BrokerSettings) -> Listener | None:
    """Ours among those that brokers use: the one that is named, else the first of the protocol that is."""
    name = settings.inter_broker_listener_name
    if name is not None:
        return next((each for each in settings.listeners if each.name == name.upper()), None)
    protocol = settings.security_inter_broker_protocol
    named = [each for each in settings.listeners if each.name == protocol]
    return next((each for each in (*named, *settings.listeners) if each.protocol == protocol), None)
