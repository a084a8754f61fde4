"""The logins of a broker, put together when it starts: those of its clients, and its own at other brokers.

What is wrong with settings or JAAS comes out as LoginSettingsError: one line, and the broker does not start.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from concurrent.futures import Executor
from typing import TYPE_CHECKING, TypeVar

from ottla.base.broker_settings import BrokerSettings
from ottla.base.clock import Clock
from ottla.base.setting_types import BadValueError
from ottla.broker.security.logins import Logins
from ottla.broker.security.scram_credentials import ImageCredentials
from ottla.broker.security.tokens import Tokens
from ottla.controller.holder import ImageHolder

if TYPE_CHECKING:
    from ottla.network.peer import LogIn

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
    if not any(listener.protocol.startswith("SASL_") for listener in settings.listeners):
        return Logins({}, clock, workers)
    from ottla.broker.security.listener_rules import listener_rules  # noqa: PLC0415 (others start without it)

    credentials = ImageCredentials(images, tokens)
    return Logins(_told(lambda: listener_rules(settings, environment, credentials, clock)), clock, workers)


def check_logins(settings: BrokerSettings, environment: Mapping[str, str], clock: Clock, workers: Executor) -> None:
    """Look at all of it before anything is opened: a mistake in JAAS must not leave a log folder unclean."""
    images = ImageHolder()
    open_logins(settings, environment, clock, workers, images, Tokens(None, images, clock))
    if settings.zookeeper_connect:
        open_peer_login(settings, environment, workers)


def open_peer_login(settings: BrokerSettings, environment: Mapping[str, str], workers: Executor) -> LogIn | None:
    """How this broker logs in at the others; None if they ask for no login."""
    from ottla.broker.security.peer_login import peer_login  # noqa: PLC0415 (a broker alone starts without it)

    return _told(lambda: peer_login(settings, environment, workers))


def _told(make: Callable[[], R]) -> R:
    from ottla.security.jaas import JaasError  # noqa: PLC0415

    try:
        return make()
    except (JaasError, BadValueError) as problem:
        raise LoginSettingsError(str(problem)) from None
