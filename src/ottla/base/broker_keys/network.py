"""Listeners, sockets and connections."""

from __future__ import annotations

from typing import Any, Final

from ottla.base.broker_keys.unused import ACLS_LOADED_FIRST, NO_REQUEST_QUEUE
from ottla.base.listeners import Listener, advertised_problem, own_host_name, parse_listeners, parse_protocol_map
from ottla.base.setting_types import INT_MAX, BadValueError, ConfigType, list_problem, one_of
from ottla.base.settings import CLUSTER_WIDE, Int, Items, Long, OptionalText, Setting, Settings, Text

EVERY_INTERFACE: Final = ("", "::")  # addresses to bind that cannot be advertised to clients


class ProtocolMap(Text):
    """The security protocol of each listener."""

    def validation_error(self, value: Any) -> str | None:
        try:
            parse_protocol_map(value)
        except BadValueError as bad:
            return str(bad)
        return None


class BoundListeners(Setting["tuple[Listener, ...]"]):
    """The addresses that the broker binds; controller listeners are known but not bound."""

    kind = ConfigType.LIST

    def validation_error(self, value: Any) -> str | None:
        return list_problem(self.name, value, may_be_empty=False)

    def effective(self, settings: Any) -> tuple[Listener, ...]:
        text = settings.texts.get(self.name)
        items: Any = self.default if text is None else self.value(text)
        return parse_listeners(items, *_protocols_and_controllers(settings))


class AdvertisedListeners(BoundListeners):
    """The addresses that clients receive; the default is the bound addresses. Each has a host."""

    def effective(self, settings: Any) -> tuple[Listener, ...]:
        advertised = self.as_written(settings)
        problem = advertised_problem(advertised, settings.listeners)
        if problem is not None:
            raise BadValueError(problem)
        return tuple(
            item._replace(host=own_host_name()[0]) if item.host in EVERY_INTERFACE else item for item in advertised
        )

    def as_written(self, settings: Any) -> tuple[Listener, ...]:
        text = settings.texts.get(self.name)
        if text is None:
            bound: tuple[Listener, ...] = settings.listeners
            return bound
        return parse_listeners(self.value(text), *_protocols_and_controllers(settings), is_advertised=True)

    def host_warning(self, settings: Any) -> str | None:
        """A warning about the host that is used when the setting has none."""
        has_no_host = any(item.host in EVERY_INTERFACE for item in self.as_written(settings))
        return own_host_name()[1] if has_no_host else None


def _protocols_and_controllers(settings: Any) -> tuple[dict[str, str], list[str]]:
    protocols = parse_protocol_map(settings.listener_security_protocol_map)
    return protocols, [name.upper() for name in settings.controller_listener_names]


class NetworkKeys(Settings):
    """Listeners, sockets and connections."""

    advertised_listeners = AdvertisedListeners(
        None,
        note="Addresses that are advertised to clients, as NAME://host:port; without it, those of listeners.",
    )
    connections_max_idle_ms = Long(600_000, note="A connection that is silent for this long is closed.")
    early_start_listeners = Items(
        None, unused=ACLS_LOADED_FIRST, note="Listeners that open before the authorizer is ready."
    )
    fetch_max_bytes = Int(
        57_671_680, at_least=1024, note="Most bytes in one answer to a fetch, whatever the client asks for."
    )
    inter_broker_listener_name = OptionalText(note="Listener that brokers use among themselves.")
    listener_security_protocol_map = ProtocolMap(
        "SASL_SSL:SASL_SSL,PLAINTEXT:PLAINTEXT,SSL:SSL,SASL_PLAINTEXT:SASL_PLAINTEXT",
        note="Security protocol of each listener name, as NAME:PROTOCOL; names may be chosen freely.",
    )
    listeners = BoundListeners(
        ("PLAINTEXT://:9092",),
        note="Addresses to open, as NAME://host:port; an empty host is every interface, port 0 any free port.",
    )
    max_connection_creation_rate = Int(
        INT_MAX,
        at_least=0,
        mode=CLUSTER_WIDE,
        note="Most new connections a second; more wait. Also as listener.name.NAME.max.connection.creation.rate.",
    )
    max_connections = Int(
        INT_MAX,
        at_least=0,
        mode=CLUSTER_WIDE,
        note="Most connections at a time; more wait. listener.name.NAME.max.connections is for one listener.",
    )
    max_connections_per_ip = Int(INT_MAX, at_least=0, mode=CLUSTER_WIDE, note="Most connections from one address.")
    max_connections_per_ip_overrides = Text(
        "",
        mode=CLUSTER_WIDE,
        note="Other limits for single addresses, as host:number, separated by commas.",
    )
    max_incremental_fetch_session_cache_slots = Int(
        1000, at_least=0, note="Most fetch sessions kept; a client without one sends all its partitions each time."
    )
    num_io_threads = Int(
        8,
        at_least=1,
        mode=CLUSTER_WIDE,
        note="Threads that do the disk work of requests and chores: syncs, cold reads, checks; one loop does the rest.",
    )
    queued_max_request_bytes = Long(
        -1, unused=NO_REQUEST_QUEUE, note="Most bytes of requests that wait to be handled; -1 is without limit."
    )
    request_timeout_ms = Int(30_000, note="Time a broker waits for another broker's answer.")
    security_inter_broker_protocol = Text(
        "PLAINTEXT",
        check=one_of("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"),
        note="Security protocol between brokers; its listener has the same name.",
    )
    socket_connection_setup_timeout_max_ms = Long(30_000, note="Longest time for making a connection to another node.")
    socket_connection_setup_timeout_ms = Long(
        10_000,
        note="First time-out for making a connection to another node; it doubles with each failure.",
    )
    socket_listen_backlog_size = Int(
        50,
        at_least=1,
        note="Connections that the system lets wait before they are accepted; 1,024 unless the file sets it.",
    )
    socket_receive_buffer_bytes = Int(
        102_400,
        note="Receive buffer of client connections; left to the system (as with -1) unless the file sets it.",
    )
    socket_request_max_bytes = Int(104_857_600, at_least=1, note="Largest request; a longer one closes the connection.")
    socket_send_buffer_bytes = Int(
        102_400,
        note="Send buffer of client connections, -1 leaves it to the system, as it is unless the file sets it.",
    )
