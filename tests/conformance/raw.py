"""Bytes on a socket: what no proper client would send, without any help from ottla's own codec.

Every number of the protocol is written out here once more on purpose: a mistake that ottla's codec makes in both
directions must not be hidden by a test that uses the same codec.
"""

import contextlib
import itertools
import os
import select
import socket
import struct
import time
from typing import Self

ANSWER_SECONDS_MAX = 10.0
OTHERS_SECONDS_MAX = 1.0


class ConnectionClosedError(Exception):
    """The broker closed the connection (end of stream or reset)."""


class Connection:
    """One TCP connection to a broker; a context manager."""

    def __init__(self, bootstrap: str, timeout_seconds: float = ANSWER_SECONDS_MAX) -> None:
        host, port = bootstrap.rsplit(":", 1)
        self.socket = socket.create_connection((host, int(port)), timeout_seconds)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.timeout_seconds = timeout_seconds
        self._correlation_ids = itertools.count(1)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self.socket.close()

    def reset(self) -> None:
        """Close with RST instead of FIN."""
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.socket.close()

    def send(self, data: bytes) -> None:
        """Send bytes as they are; a peer that has already closed is what some tests want, so no error."""
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            self.socket.sendall(data)

    def send_frame(self, payload: bytes) -> None:
        self.send(i32(len(payload)) + payload)

    def send_request(self, api_key: int, version: int, body: bytes, *, flexible_header: bool = False) -> int:
        """Send a request with a right header and any body; the correlation id."""
        correlation_id = next(self._correlation_ids)
        self.send_frame(request_header(api_key, version, correlation_id, flexible=flexible_header) + body)
        return correlation_id

    def read_frame(self, timeout_seconds: float | None = None) -> bytes:
        """The payload of the next frame."""
        deadline = time.monotonic() + (self.timeout_seconds if timeout_seconds is None else timeout_seconds)
        (length,) = struct.unpack(">i", self._read(4, deadline))
        return self._read(length, deadline)

    def ask(self, api_key: int, version: int, body: bytes, *, flexible_header: bool = False) -> bytes:
        """The answer behind its correlation id (a flexible response header's tag count is still in front)."""
        correlation_id = self.send_request(api_key, version, body, flexible_header=flexible_header)
        answer = self.read_frame()
        assert struct.unpack(">i", answer[:4]) == (correlation_id,)
        return answer[4:]

    def is_closed_by_peer(self, timeout_seconds: float = ANSWER_SECONDS_MAX) -> bool:
        """Whether the broker closes within the time without sending another byte."""
        try:
            self._read(1, time.monotonic() + timeout_seconds)
        except ConnectionClosedError:
            return True
        except TimeoutError:
            return False
        return False

    def _read(self, size: int, deadline: float) -> bytes:
        data = bytearray()
        while len(data) < size:
            self.socket.settimeout(max(0.001, deadline - time.monotonic()))
            try:
                chunk = self.socket.recv(size - len(data))
            except ConnectionResetError as problem:
                raise ConnectionClosedError from problem
            if not chunk:
                raise ConnectionClosedError
            data += chunk
        return bytes(data)


def i8(value: int) -> bytes:
    return struct.pack(">b", value)


def i16(value: int) -> bytes:
    return struct.pack(">h", value)


def i32(value: int) -> bytes:
    return struct.pack(">i", value)


def i64(value: int) -> bytes:
    return struct.pack(">q", value)


def uvarint(value: int) -> bytes:
    """Unsigned base-128, least significant group first."""
    output = bytearray()
    while value > 0x7F:
        output.append(value & 0x7F | 0x80)
        value >>= 7
    output.append(value)
    return bytes(output)


def varint(value: int) -> bytes:
    """Signed zig-zag base-128 of up to 64 bits."""
    return uvarint((value << 1 ^ value >> 63) & 0xFFFFFFFFFFFFFFFF)


def string(value: str | bytes | None) -> bytes:
    if value is None:
        return i16(-1)
    data = value.encode() if isinstance(value, str) else value
    return i16(len(data)) + data


def compact_string(value: str | bytes | None) -> bytes:
    if value is None:
        return uvarint(0)
    data = value.encode() if isinstance(value, str) else value
    return uvarint(len(data) + 1) + data


def array(items: list[bytes]) -> bytes:
    return i32(len(items)) + b"".join(items)


def compact_array(items: list[bytes]) -> bytes:
    return uvarint(len(items) + 1) + b"".join(items)


def request_header(
    api_key: int, version: int, correlation_id: int, client_id: str | None = "raw", *, flexible: bool = False
) -> bytes:
    header = i16(api_key) + i16(version) + i32(correlation_id) + string(client_id)
    return header + uvarint(0) if flexible else header


def api_versions_v0(bootstrap: str, timeout_seconds: float = ANSWER_SECONDS_MAX) -> dict[int, tuple[int, int]]:
    """The answer to ApiVersions on a new connection: api key -> (lowest, highest version)."""
    with Connection(bootstrap, timeout_seconds) as connection:
        body = connection.ask(18, 0, b"")
    error, count = struct.unpack(">hi", body[:6])
    assert error == 0
    rows = [struct.unpack(">hhh", body[6 + 6 * index : 12 + 6 * index]) for index in range(count)]
    return {key: (lowest, highest) for key, lowest, highest in rows}


def assert_others_are_served(bootstrap: str) -> None:
    """Whatever one peer does, a fresh connection gets its answer within a second."""
    started = time.monotonic()
    assert 18 in api_versions_v0(bootstrap, timeout_seconds=OTHERS_SECONDS_MAX)
    assert time.monotonic() - started <= OTHERS_SECONDS_MAX


def is_readable(connection: Connection, timeout_seconds: float) -> bool:
    return bool(select.select([connection.socket], [], [], timeout_seconds)[0])


def listening_pid(bootstrap: str) -> int:
    """The process on this machine that listens at the address."""
    port = int(bootstrap.rsplit(":", 1)[1])
    inodes = {inode for table in ("tcp", "tcp6") for inode in _listening_inodes(f"/proc/net/{table}", port)}
    for pid in filter(str.isdigit, os.listdir("/proc")):
        if inodes & _socket_inodes(pid):
            return int(pid)
    raise LookupError(f"no process listens on {bootstrap}")


def resident_bytes(pid: int) -> int:
    with open(f"/proc/{pid}/statm") as statm:
        return int(statm.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def cpu_seconds(pid: int) -> float:
    """Processor time that the process has used so far, user and system."""
    with open(f"/proc/{pid}/stat") as stat:
        columns = stat.read().rsplit(")", 1)[1].split()
    return (int(columns[11]) + int(columns[12])) / os.sysconf("SC_CLK_TCK")


def open_files(pid: int) -> int:
    return len(os.listdir(f"/proc/{pid}/fd"))


def _listening_inodes(table: str, port: int) -> set[str]:
    with open(table) as rows:
        columns = [row.split() for row in list(rows)[1:]]
    return {row[9] for row in columns if row[3] == "0A" and int(row[1].rsplit(":", 1)[1], 16) == port}


def _socket_inodes(pid: str) -> set[str]:
    inodes = set()
    with contextlib.suppress(OSError):  # the process may end while it is looked at
        for name in os.listdir(f"/proc/{pid}/fd"):
            with contextlib.suppress(OSError):  # and so may a single file of it
                inodes.add(os.readlink(f"/proc/{pid}/fd/{name}").removeprefix("socket:[").removesuffix("]"))
    return inodes
