"""SASL mechanisms of each listener, from settings and JAAS.

They are read when the broker starts. A missing or malformed value stops it with one line that gives the place.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any, Final, NamedTuple

from ottla.base.broker_settings import BrokerSettings
from ottla.base.clock import Clock
from ottla.base.listeners import Listener, listener_key
from ottla.broker.security.server_authenticator import ListenerRules, Mechanism
from ottla.security.jaas import (
    JAAS_CONFIG,
    AppConfigurationEntry,
    JaasError,
    JaasMissingError,
    ServerJaasConfig,
    configured_file,
    java_properties,
    read_sections,
)
from ottla.security.sasl.scram import Credentials
from ottla.security.sasl.server_mechanisms import SERVERS, ServerMechanismConfig
from ottla.security.scram_credentials import HASHES

WITHOUT_JAAS: Final = frozenset({*HASHES, "OAUTHBEARER"})


def listener_rules(
    settings: BrokerSettings, environment: Mapping[str, str], credentials: Credentials, clock: Clock
) -> dict[str, ListenerRules]:
    """Return the rules of every SASL listener; raises JaasError."""
    names = [listener.name for listener in settings.listeners if listener.protocol.startswith("SASL_")]
    if not names:
        return {}
    reading = _RuleSources(settings, server_logins(settings, environment), credentials, clock)
    return {name: reading.rules(name) for name in names}


def server_logins(settings: BrokerSettings, environment: Mapping[str, str]) -> ServerJaasConfig:
    values = {key: text for key, text in settings.texts.items() if key.endswith(f".{JAAS_CONFIG}")}
    path = configured_file(environment)
    sections = read_sections(path) if path is not None else {}
    return ServerJaasConfig(values, path, sections, java_properties(environment))


def mechanism_setting(settings: BrokerSettings, listener: str, mechanism: str, base: str) -> Any:
    """Return the first value that is set: of the mechanism on the listener, of the listener, of the broker."""
    key = settings.keys[base]
    own = listener_key(listener, f"{mechanism.lower()}.{base}")
    return key.value(settings.texts[own]) if own in settings.texts else settings.of_listener(listener, base)


class _RuleSources(NamedTuple):
    """The sources of the rules."""

    settings: BrokerSettings
    logins: ServerJaasConfig
    credentials: Credentials
    clock: Clock

    def rules(self, listener: str) -> ListenerRules:
        names = self.settings.of_listener(listener, "sasl.enabled.mechanisms")
        if not names:
            raise JaasError(f"listener {listener} needs a login, but sasl.enabled.mechanisms is empty")
        return ListenerRules(
            {name: self._mechanism(listener, name) for name in names},
            self.settings.of_listener(listener, "sasl.server.max.receive.size"),
            self.settings.connection_failed_authentication_delay_ms,
        )

    def _mechanism(self, listener: str, name: str) -> Mechanism:
        make = SERVERS.get(name)
        if make is None:
            raise JaasError(
                f"listener {listener}: sasl.enabled.mechanisms contains {name}, "
                f"supported are {', '.join(sorted(SERVERS))}"
            )
        setting = partial(mechanism_setting, self.settings, listener, name)
        parts = ServerMechanismConfig(
            listener, name, self._module(listener, name), setting, self.credentials, self.clock
        )
        return Mechanism(make(parts), setting("connections.max.reauth.ms"))

    def _module(self, listener: str, mechanism: str) -> AppConfigurationEntry | None:
        """Return the login module.

        Some mechanisms need JAAS only for the broker's own login: their users are in the metadata.
        """
        try:
            return self.logins.module_of(listener, mechanism)
        except JaasMissingError:
            if mechanism in WITHOUT_JAAS:
                return None
            raise


def dedicated_inter_broker_listener(settings: BrokerSettings) -> str | None:
    """Return the inter-broker listener, if clients have others."""
    listener = inter_broker_listener(settings)
    return listener.name if listener is not None and len(settings.listeners) > 1 else None


def inter_broker_listener(settings: BrokerSettings) -> Listener | None:
    """Return the inter-broker listener: the named one, otherwise the first one of the inter-broker protocol."""
    name = settings.inter_broker_listener_name
    if name is not None:
        return next((each for each in settings.listeners if each.name == name.upper()), None)
    protocol = settings.security_inter_broker_protocol
    named = [each for each in settings.listeners if each.name == protocol]
    return next((each for each in (*named, *settings.listeners) if each.protocol == protocol), None)
