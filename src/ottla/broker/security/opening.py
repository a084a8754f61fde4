"""The logins of a broker, put together when it starts: those of its clients, and its own at other brokers.

`open_changes` is how they become others while it runs.

What is wrong with settings or JAAS comes out as LoginSettingsError: one line, and the broker does not start.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from concurrent.futures import Executor
from typing import TYPE_CHECKING, TypeVar

from ottla.base.broker_settings import BrokerSettings
from ottla.base.clock import Clock
from ottla.base.setting_types import BadValueError
from ottla.broker.node import Node
from ottla.broker.security.changes import Makers, SecurityChanges
from ottla.broker.security.logins import ListenerRules, Logins
from ottla.broker.security.scram_credentials import ImageCredentials
from ottla.broker.security.tokens import Tokens
from ottla.controller.holder import ImageHolder

if TYPE_CHECKING:
    from ottla.broker.security.peer_login import PeerLogin
    from ottla.broker.security.tls import BrokerTls
    from ottla.security.sasl.client_logins import ClientLogin

R = TypeVar("R")


class LoginSettingsError(Exception):
    """Why nobody could log in."""


def open_logins(
    settings: BrokerSettings,
    environment: Mapping[str, str],
    clock: Clock,
    workers: Executor,
    images: ImageHolder,
    tokens: Tokens,
) -> Logins:
    """The gate of listeners that ask for a login."""
    make = _rules_maker(environment, clock, ImageCredentials(images, tokens))
    return Logins(_told(lambda: make(settings)), clock, workers)


def open_changes(
    settings: BrokerSettings,
    environment: Mapping[str, str],
    node: Node,
    logins: Logins,
    peer_login: PeerLogin | None,
    tls: BrokerTls | None,
    tokens: Tokens,
) -> SecurityChanges:
    """What makes other settings count while the broker runs."""

    def make_login(changed: BrokerSettings) -> ClientLogin | None:
        from ottla.broker.security.peer_login import inter_broker_login  # noqa: PLC0415

        return inter_broker_login(changed, environment)

    makers = Makers(_rules_maker(environment, node.clock, ImageCredentials(node.images, tokens)), make_login)
    return SecurityChanges(settings, makers, logins, peer_login, tls, node.workers)


def _rules_maker(
    environment: Mapping[str, str], clock: Clock, credentials: ImageCredentials
) -> Callable[[BrokerSettings], dict[str, ListenerRules]]:
    def make(settings: BrokerSettings) -> dict[str, ListenerRules]:
        if not any(listener.protocol.startswith("SASL_") for listener in settings.listeners):
            return {}
        from ottla.broker.security.listener_rules import listener_rules  # noqa: PLC0415 (others start without it)

        return listener_rules(settings, environment, credentials, clock)

    return make


def check_logins(settings: BrokerSettings, environment: Mapping[str, str], clock: Clock, workers: Executor) -> None:
    """Look at all of it before anything is opened: a mistake in JAAS must not leave a log folder unclean."""
    images = ImageHolder()
    open_logins(settings, environment, clock, workers, images, Tokens(None, images, clock))
    if settings.zookeeper_connect:
        open_peer_login(settings, environment, workers)


def open_peer_login(settings: BrokerSettings, environment: Mapping[str, str], workers: Executor) -> PeerLogin | None:
    """How this broker logs in at the others; None if they ask for no login."""
    from ottla.broker.security.peer_login import (  # noqa: PLC0415 (a broker alone starts without it)
        PeerLogin,
        inter_broker_login,
    )

    login = _told(lambda: inter_broker_login(settings, environment))
    return PeerLogin(login, workers) if login is not None else None


def _told(make: Callable[[], R]) -> R:
    from ottla.security.jaas import JaasError  # noqa: PLC0415

    try:
        return make()
    except (JaasError, BadValueError) as problem:
        raise LoginSettingsError(str(problem)) from None
