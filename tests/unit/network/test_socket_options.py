"""Options for bad networks, on real sockets of the loopback."""

import socket
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from ottla.network import socket_options
from ottla.network.socket_options import (
    NO_OPTIONS,
    TCP_RTO_MIN_US,
    TCP_THIN_LINEAR_TIMEOUTS,
    SocketOptions,
    local_congestion_control,
    set_silence_timeout,
    socket_options_problem,
)

TCP = socket.IPPROTO_TCP
RTO_MIN = "ottla.socket.retransmission.timeout.min.ms"


def test_without_options_a_socket_is_as_the_kernel_has_it() -> None:
    names = (socket.TCP_KEEPIDLE, socket.TCP_USER_TIMEOUT, socket.TCP_NOTSENT_LOWAT, socket.TCP_CONGESTION)
    with socket.socket() as plain, socket.socket() as other:
        NO_OPTIONS.apply(other)
        assert [plain.getsockopt(TCP, name) for name in names] == [other.getsockopt(TCP, name) for name in names]


def test_each_option_arrives_at_the_socket() -> None:
    options = SocketOptions(congestion_control="reno", user_timeout_ms=20_000, unsent_bytes_max=131_072)
    with socket.socket() as sock:
        options.apply(sock)
        assert sock.getsockopt(TCP, socket.TCP_CONGESTION, 16).rstrip(b"\0") == b"reno"
        assert sock.getsockopt(TCP, socket.TCP_USER_TIMEOUT) == 20_000
        assert sock.getsockopt(TCP, socket.TCP_NOTSENT_LOWAT) == 131_072
        assert sock.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE) == 1
        kept = (socket.TCP_KEEPIDLE, socket.TCP_KEEPINTVL, socket.TCP_KEEPCNT)
        assert [sock.getsockopt(TCP, name) for name in kept] == [8, 4, 3], "together no longer than the time-out"


def test_the_shortest_wait_before_something_is_sent_again_arrives_or_is_refused_in_a_sentence() -> None:
    options = SocketOptions(retransmission_ms_min=60)
    problem = socket_options_problem(options)
    if problem is not None:  # a kernel before 6.15
        assert problem.startswith(f"{RTO_MIN}=60 is not possible here: the kernel must be Linux 6.15 or newer")
        return
    with socket.socket() as sock:
        options.apply(sock)
        assert sock.getsockopt(TCP, TCP_THIN_LINEAR_TIMEOUTS) == 1
        assert sock.getsockopt(TCP, TCP_RTO_MIN_US) == pytest.approx(60_000, abs=10_000)  # in ticks of the kernel


def test_a_very_short_time_out_still_makes_probes_of_a_second() -> None:
    with socket.socket() as sock:
        set_silence_timeout(sock, 1)
        assert sock.getsockopt(TCP, socket.TCP_KEEPIDLE) == 1


@pytest.mark.parametrize("name", ["cubik", "b b r", "x" * 100, "ä", "a\0b"])
def test_a_congestion_control_that_the_kernel_lacks_is_refused_with_what_it_has(name: str) -> None:
    problem = socket_options_problem(SocketOptions(congestion_control=name))
    assert problem is not None
    assert problem.startswith(f"ottla.socket.congestion.control={name} is not available in this kernel: ")
    assert "reno" in problem
    assert problem.endswith("modprobe tcp_cubik") == (name == "cubik")


def test_a_congestion_control_that_only_root_may_use_is_refused_with_the_cure(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(socket_options, "_set_congestion_control", refuse)
    problem = socket_options_problem(SocketOptions(congestion_control="bbr"))
    assert problem is not None
    assert "net.ipv4.tcp_allowed_congestion_control" in problem


def test_only_connections_within_the_machine_get_what_is_meant_for_them() -> None:
    usual = _usual()
    options = SocketOptions(local_congestion_control="reno")
    with _accepted(client="127.0.0.1") as local, _accepted(client="127.0.0.2") as other:
        options.apply(local)
        options.apply(other)
        assert (_congestion_control(local), _congestion_control(other)) == (b"reno", usual)


def test_what_is_set_for_all_connections_counts_within_the_machine_too() -> None:
    with _accepted(client="127.0.0.1") as sock:
        SocketOptions(congestion_control="reno", local_congestion_control="none such").apply(sock)
        assert _congestion_control(sock) == b"reno"


def test_a_client_that_is_gone_before_it_was_taken_in_is_no_error() -> None:
    with socket.socket() as unconnected:
        SocketOptions(local_congestion_control="none such").apply(unconnected)


def test_the_send_buffer_is_left_to_the_kernel_unless_a_timer_sends(monkeypatch: pytest.MonkeyPatch) -> None:
    options = SocketOptions(congestion_control="reno", paced_send_buffer_bytes=50_000)
    with socket.socket() as plain, socket.socket() as paced:
        usual = plain.getsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF)
        options.apply(plain)
        assert plain.getsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF) == usual
        monkeypatch.setattr(socket_options, "PACED", b"reno")
        options.apply(paced)
        assert paced.getsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF) == 100_000  # the kernel doubles it


def test_a_machine_that_sends_by_a_timer_does_not_do_so_within_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(socket_options, "PACED", _usual())
    assert local_congestion_control() == "reno"
    monkeypatch.setattr(socket_options, "PACED", b"none such")
    assert local_congestion_control() == ""


def test_where_there_is_nothing_cheaper_all_stays_as_the_machine_has_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(socket_options, "PACED", _usual())
    monkeypatch.setattr(socket_options, "UNPACED", "none such")
    assert local_congestion_control() == ""


def test_packets_leave_by_a_timer_from_a_full_socket_on_until_it_was_not_full_for_a_minute(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(socket_options, "PACED", b"reno")  # every kernel has it
    options = SocketOptions(congestion_control="reno")
    with socket.socket() as sock:
        usual = _congestion_control(sock)
        options.apply(sock)
        pace = options.pace(sock)
        assert pace is not None
        found = [_congestion_control(sock)]
        for step, now in (
            (pace.on_socket_full, 100.0),
            (pace.on_sweep, 130.0),
            (pace.on_socket_full, 131.0),
            (pace.on_sweep, 190.0),
            (pace.on_sweep, 192.0),
            (pace.on_socket_full, 193.0),
        ):
            step(now)
            found.append(_congestion_control(sock))
        assert found == [usual, b"reno", b"reno", b"reno", b"reno", usual, b"reno"]


def test_what_sends_without_a_timer_is_for_all_sockets_from_the_beginning() -> None:
    with socket.socket() as sock:
        assert SocketOptions(congestion_control="reno").pace(sock) is None
        assert NO_OPTIONS.pace(sock) is None


def test_a_connection_that_is_gone_has_no_pace_to_change(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(socket_options, "PACED", b"reno")
    with socket.socket() as sock:
        pace = SocketOptions(congestion_control="reno").pace(sock)
    assert pace is not None
    pace.on_socket_full(100.0)


def _usual() -> bytes:
    with socket.socket() as sock:
        return _congestion_control(sock)


def _congestion_control(sock: socket.socket) -> bytes:
    return sock.getsockopt(TCP, socket.TCP_CONGESTION, 16).rstrip(b"\0")


@contextmanager
def _accepted(client: str) -> Iterator[socket.socket]:
    """Our end of a connection from this address to 127.0.0.1."""
    with (
        socket.create_server(("127.0.0.1", 0)) as server,
        socket.create_connection(server.getsockname(), source_address=(client, 0)),
        server.accept()[0] as accepted,
    ):
        yield accepted
