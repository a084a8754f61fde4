"""Limits and socket options of connections, from the broker's settings."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from ottla.base.broker_checks import parse_connection_overrides
from ottla.base.broker_settings import BrokerSettings
from ottla.network.listener_limits import ConnectionLimits, ListenerLimits
from ottla.network.socket_options import SocketOptions, local_congestion_control

BACKLOG: Final = 1024
PACED_SEND_BUFFER_BYTES: Final = 307_200


def connection_limits(settings: BrokerSettings) -> ConnectionLimits:
    """Return Kafka's limits. Three costly defaults apply only if they are set explicitly. Socket buffers of 100 KiB
    disable the kernel's tuning, which is a third faster except for paced packets. With a backlog of 50, the 51st of
    many simultaneous clients waits for a second.
    """
    explicit = settings.explicit
    has_send_buffer = "socket.send.buffer.bytes" in explicit
    link = link_options(settings)
    return ConnectionLimits(
        frame_bytes_max=settings.socket_request_max_bytes,
        connections_max=settings.max_connections,
        connections_per_host_max=settings.max_connections_per_ip,
        connections_by_host=parse_connection_overrides(settings.max_connections_per_ip_overrides),
        creation_rate=settings.max_connection_creation_rate,
        by_listener={listener.name: listener_limits(settings, listener.name) for listener in settings.listeners},
        idle_ms_max=settings.connections_max_idle_ms,
        send_buffer_bytes=settings.socket_send_buffer_bytes if has_send_buffer else -1,
        receive_buffer_bytes=settings.socket_receive_buffer_bytes if "socket.receive.buffer.bytes" in explicit else -1,
        backlog=settings.socket_listen_backlog_size if "socket.listen.backlog.size" in explicit else BACKLOG,
        link=link if has_send_buffer else replace(link, paced_send_buffer_bytes=PACED_SEND_BUFFER_BYTES),
    )


def link_options(settings: BrokerSettings) -> SocketOptions:
    """Return the socket options for clients and other brokers."""
    return SocketOptions(
        congestion_control=settings.ottla_socket_congestion_control,
        local_congestion_control=local_congestion_control(),
        retransmission_ms_min=settings.ottla_socket_retransmission_timeout_min_ms,
        user_timeout_ms=settings.ottla_socket_user_timeout_ms,
        unsent_bytes_max=settings.ottla_socket_unsent_max_bytes,
    )


def listener_limits(settings: BrokerSettings, listener: str) -> ListenerLimits:
    return ListenerLimits(
        connections_max=settings.of_listener(listener, "max.connections"),
        creation_rate=settings.of_listener(listener, "max.connection.creation.rate"),
    )
