"""Telling the world that the broker serves: the ready line, systemd, and what may keep clients from finding it."""

from __future__ import annotations

import logging
import os
import socket
import threading
from collections.abc import Iterable

from ottla.base.broker_checks import is_loopback
from ottla.base.broker_settings import BrokerSettings
from ottla.base.compiled import is_compiled, plain_words
from ottla.base.listeners import ALL_INTERFACES
from ottla.network.listener import Listener

logger = logging.getLogger(__name__)


def announce(settings: BrokerSettings, listeners: list[Listener]) -> None:
    """The broker accepts connections from now on."""
    plain = plain_words(is_plain=not is_compiled())
    if plain is not None:
        logger.warning("%s", plain)
    print(f"ottla broker {settings.node_id} ready on {shown_address(listeners[0])}", flush=True)
    tell_systemd("READY=1")
    # A name server that does not answer must hold up neither the start nor the end: nobody waits for this thread.
    threading.Thread(target=warn_about_addresses, args=(settings,), name="addresses", daemon=True).start()


def shown_address(listener: Listener) -> str:
    host = listener.host or ALL_INTERFACES
    return f"[{host}]:{listener.port}" if ":" in host else f"{host}:{listener.port}"


def tell_systemd(state: str) -> None:
    """For units of Type=notify; without systemd this does nothing."""
    address = os.environ.get("NOTIFY_SOCKET", "")
    if not address:
        return
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as notifier:
            notifier.sendto(state.encode(), f"\0{address[1:]}" if address.startswith("@") else address)
    except OSError as error:
        logger.warning("cannot tell systemd %s: %s", state, error.strerror or error)


def warn_about_addresses(settings: BrokerSettings) -> None:
    """One line for every address that clients are told and cannot use."""
    bound = {listener.name: listener.host for listener in settings.listeners}
    for advertised in settings.advertised_listeners:
        problem = address_problem(advertised.host, bound.get(advertised.name, ""))
        if problem is not None:
            logger.warning(
                "clients are told to connect to %s: %s. They get one answer and then LEADER_NOT_AVAILABLE or "
                "refused connections: set advertised.listeners to a name of this machine that they can reach",
                advertised,
                problem,
            )


def address_problem(host: str, bound_host: str) -> str | None:
    """Why clients may not find an advertised host; None if nothing speaks against it."""
    if is_loopback(bound_host):
        return None  # only this machine can connect anyway
    try:
        found = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError):
        return f"{host} does not resolve, at least not on this machine"
    if _all_loopback(str(item[4][0]) for item in found):
        return f"on any other machine {host} is that machine itself"
    return None


def _all_loopback(addresses: Iterable[str]) -> bool:
    return all(is_loopback(address) for address in addresses)
