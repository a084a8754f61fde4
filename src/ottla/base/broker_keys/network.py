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
        note="Addresses that are advertised to clients, as NAME://host:port; by default those of listeners.",
    )
    connections_max_idle_ms = Long(600_000, note="Time after which an idle connection is closed.")
    early_start_listeners = Items(
        None,
        unused=ACLS_LOADED_FIRST,
        note="Listeners that are opened before the authorizer is ready.",
    )
    fetch_max_bytes = Int(
        57_671_680, at_least=1024, note="Maximum size of a fetch response, even if the client requests more."
    )
    inter_broker_listener_name = OptionalText(note="Listener for connections between brokers.")
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
        note="Maximum number of new connections per second; further ones wait. For one listener: "
        "listener.name.NAME.max.connection.creation.rate.",
    )
    max_connections = Int(
        INT_MAX,
        at_least=0,
        mode=CLUSTER_WIDE,
        note="Maximum number of connections; further ones wait. For one listener: listener.name.NAME.max.connections.",
    )
    max_connections_per_ip = Int(
        INT_MAX, at_least=0, mode=CLUSTER_WIDE, note="Maximum number of connections from one address."
    )
    max_connections_per_ip_overrides = Text(
        "",
        mode=CLUSTER_WIDE,
        note="Limits for single addresses, as host:number, separated by commas.",
    )
    max_incremental_fetch_session_cache_slots = Int(
        1000,
        at_least=0,
        note="Maximum number of fetch sessions; a client without a session sends all its partitions in each request.",
    )
    num_io_threads = Int(
        8,
        at_least=1,
        mode=CLUSTER_WIDE,
        note="Threads for the disk work of requests and background tasks: syncs, reads of cold data, checks; all other "
        "work is done by one event loop.",
    )
    queued_max_request_bytes = Long(
        -1, unused=NO_REQUEST_QUEUE, note="Maximum number of bytes of queued requests; -1 is unlimited."
    )
    request_timeout_ms = Int(30_000, note="Time for which a broker waits for a response of another broker.")
    security_inter_broker_protocol = Text(
        "PLAINTEXT",
        check=one_of("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"),
        note="Security protocol between brokers; its listener has the same name.",
    )
    socket_connection_setup_timeout_max_ms = Long(
        30_000, note="Maximum time for establishing a connection to another node."
    )
    socket_connection_setup_timeout_ms = Long(
        10_000,
        note="First timeout for establishing a connection to another node; it doubles with each failure.",
    )
    socket_listen_backlog_size = Int(
        50,
        at_least=1,
        note="Number of pending connections in the kernel's queue; 1,024 unless the file sets it.",
    )
    socket_receive_buffer_bytes = Int(
        102_400,
        note="Receive buffer of client connections; the system's default (as with -1) unless the file sets it.",
    )
    socket_request_max_bytes = Int(
        104_857_600, at_least=1, note="Maximum size of a request; a larger one closes the connection."
    )
    socket_send_buffer_bytes = Int(
        102_400,
        note="Send buffer of client connections; the system's default (as with -1) unless the file sets it.",
    )
