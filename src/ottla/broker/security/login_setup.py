"""Construction of a broker's logins: of its clients, and its own at other brokers.

`make_security_changes` rebuilds them when settings change. Errors in settings or JAAS raise
LoginSettingsError: the broker does not start.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from concurrent.futures import Executor
from typing import TYPE_CHECKING, TypeVar

from ottla.base.broker_settings import BrokerSettings
from ottla.base.clock import Clock
from ottla.base.setting_types import BadValueError
from ottla.broker.node import Node
from ottla.broker.security.delegation_tokens import DelegationTokenManager
from ottla.broker.security.reconfiguration import LoginFactories, SecurityReconfiguration
from ottla.broker.security.server_authenticator import ListenerRules, ServerAuthenticator
from ottla.controller.image import MetadataCache
from ottla.security.scram_credentials import ScramCredential, parse_credential

if TYPE_CHECKING:
    from ottla.broker.security.inter_broker_login import InterBrokerLogin
    from ottla.broker.security.tls import BrokerTls
    from ottla.security.sasl.client_authenticator import ClientLogin
    from ottla.security.sasl.scram import TokenCredential


logger = logging.getLogger(__name__)

R = TypeVar("R")


class ImageCredentialProvider:
    """SCRAM credentials of users and delegation tokens; every login reads the current image."""

    def __init__(self, images: MetadataCache, tokens: DelegationTokenManager) -> None:
        self._images = images
        self._tokens = tokens
        self._seen: Mapping[str, Mapping[str, str]] | None = None
        self._any: dict[str, ScramCredential | None] = {}  # by mechanism, while the users are unchanged

    def find(self, mechanism: str, name: str) -> ScramCredential | None:
        text = self._images.image.user_configs.get(name, {}).get(mechanism)
        if text is None:
            return None
        try:
            return parse_credential(mechanism, text)
        except ValueError:
            logger.warning("the %s credential of user %r is damaged: set the password again", mechanism, name[:100])
            return None

    def any_credential(self, mechanism: str) -> ScramCredential | None:
        users = self._images.image.user_configs
        if users is not self._seen:
            self._seen = users
            self._any.clear()
        if mechanism not in self._any:
            name = next((name for name, config in users.items() if mechanism in config), None)
            self._any[mechanism] = self.find(mechanism, name) if name is not None else None
        return self._any[mechanism]

    @property
    def has_tokens(self) -> bool:
        return self._tokens.is_enabled

    def find_token(self, mechanism: str, token_id: str) -> TokenCredential | None:
        return self._tokens.credential(mechanism, token_id)

    def __repr__(self) -> str:
        return f"<ImageCredentialProvider {len(self._images.image.user_configs)} users>"


class LoginSettingsError(Exception):
    """The reason why logins cannot work, in one line."""


def make_authenticator(
    settings: BrokerSettings,
    environment: Mapping[str, str],
    clock: Clock,
    workers: Executor,
    images: MetadataCache,
    tokens: DelegationTokenManager,
) -> ServerAuthenticator:
    """Return the authentication of all listeners that need a login."""
    make = _rules_maker(environment, clock, ImageCredentialProvider(images, tokens))
    return ServerAuthenticator(_convert_errors(lambda: make(settings)), clock, workers)


def make_security_changes(
    settings: BrokerSettings,
    environment: Mapping[str, str],
    node: Node,
    logins: ServerAuthenticator,
    peer_login: InterBrokerLogin | None,
    tls: BrokerTls | None,
    tokens: DelegationTokenManager,
) -> SecurityReconfiguration:
    """Return the component that applies changed settings at run time."""

    def make_login(changed: BrokerSettings) -> ClientLogin | None:
        from ottla.broker.security.inter_broker_login import inter_broker_login  # noqa: PLC0415

        return inter_broker_login(changed, environment)

    makers = LoginFactories(
        _rules_maker(environment, node.clock, ImageCredentialProvider(node.images, tokens)), make_login
    )
    return SecurityReconfiguration(settings, makers, logins, peer_login, tls, node.workers)


def _rules_maker(
    environment: Mapping[str, str], clock: Clock, credentials: ImageCredentialProvider
) -> Callable[[BrokerSettings], dict[str, ListenerRules]]:
    def make(settings: BrokerSettings) -> dict[str, ListenerRules]:
        if not any(listener.protocol.startswith("SASL_") for listener in settings.listeners):
            return {}
        from ottla.broker.security.listener_mechanisms import listener_rules  # noqa: PLC0415 (other brokers start without it)

        return listener_rules(settings, environment, credentials, clock)

    return make


def check_logins(settings: BrokerSettings, environment: Mapping[str, str], clock: Clock, workers: Executor) -> None:
    """Check all logins before anything is opened: an error in JAAS must not cause an unclean shutdown."""
    images = MetadataCache()
    make_authenticator(settings, environment, clock, workers, images, DelegationTokenManager(None, images, clock))
    if settings.zookeeper_connect:
        make_inter_broker_login(settings, environment, workers)


def make_inter_broker_login(
    settings: BrokerSettings, environment: Mapping[str, str], workers: Executor
) -> InterBrokerLogin | None:
    """Return the login of this broker at other brokers; None if they need none."""
    from ottla.broker.security.inter_broker_login import (  # noqa: PLC0415 (a standalone broker starts without it)
        InterBrokerLogin,
        inter_broker_login,
    )

    login = _convert_errors(lambda: inter_broker_login(settings, environment))
    return InterBrokerLogin(login, workers) if login is not None else None


def _convert_errors(make: Callable[[], R]) -> R:
    from ottla.security.jaas import JaasError  # noqa: PLC0415

    try:
        return make()
    except (JaasError, BadValueError) as problem:
        raise LoginSettingsError(str(problem)) from None
