"""The process that forwards or drops packets between the hosts of a LossyNetwork: see lossy_network.py.

A host is a network namespace with one TUN device. Its kernel writes packets there. This process reads them, decides by
random numbers, and writes them to the device of the target host when they are due.

Rules:
1. Each direction between two hosts has a seeded random generator, used once for each packet of wire size. A kernel may
   pass up to 64 KB at once (TSO): such a packet is split if a part of it is lost.
2. Only descriptors hold namespaces and devices: they are removed when this process ends, however it ends.
3. A line of JSON on standard input changes a direction, an empty object is a query; each gets a line with the counts so
   far. The process ends with its standard input.
"""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import heapq
import json
import os
import random
import select
import socket
import struct
import sys
import time
from typing import Any, Final

NETWORK: Final = "10.77.0"
MTU_BYTES: Final = 1500
QUEUE_PACKETS: Final = 10_000  # of a device: packets that its kernel keeps while this process is not scheduled
QUEUE_SECONDS_MAX: Final = 0.2  # the queue of a narrow line; further packets are lost, as in a router
READS_PER_TURN: Final = 32
READ_BYTES: Final = 70_000

CLONE_NEWNET: Final = 0x40000000
TUNSETIFF, TUNSETOFFLOAD = 0x400454CA, 0x400454D0
IFF_TUN, IFF_NO_PI, IFF_VNET_HDR = 0x0001, 0x1000, 0x4000
OFFLOAD_CHECKSUM, OFFLOAD_TSO4 = 0x01, 0x02
SIOCSIFFLAGS, SIOCSIFADDR, SIOCSIFNETMASK, SIOCSIFMTU, SIOCSIFTXQLEN = 0x8914, 0x8916, 0x891C, 0x8922, 0x8943
IFF_UP: Final = 0x1

VNET: Final = struct.Struct("<BBHHHH")  # flags, kind, header bytes, segment bytes, checksum start, checksum offset
KIND_NONE: Final = 0
FIN_AND_PUSH, CWR = 0x09, 0x80


class Direction:
    """The conditions for packets from one host to another."""

    def __init__(self, source: int, target: int, seed: int) -> None:
        self.random = random.Random(f"{seed} {source} {target}")  # noqa: S311 (not a secret)
        self.loss = 0.0  # share of the packets
        self.delay_ms = 0.0
        self.reorder = 0.0  # share of the packets with half the delay again, so that later ones overtake them
        self.bytes_per_second = 0.0  # 0: no limit
        self.free_at = 0.0
        self.carried = self.lost = self.reordered = self.carried_bytes = 0

    def change(self, settings: dict[str, float]) -> None:
        for name in ("loss", "delay_ms", "reorder", "bytes_per_second"):
            setattr(self, name, settings.get(name, getattr(self, name)))

    def survivors(self, packet: bytes) -> list[bytes]:
        """The surviving parts of a packet: one, several or none."""
        kind, segment_bytes = packet[1], int.from_bytes(packet[4:6], "little")
        if kind == KIND_NONE or not segment_bytes:
            return [] if self._is_lost() else [packet]
        start = payload_start(packet)
        count = -(-(len(packet) - start) // segment_bytes)
        kept = [not self._is_lost() for _ in range(count)]
        if all(kept):
            return [packet]
        pieces, first = [], 0
        while first < count:
            last = first
            while last < count and kept[last]:
                last += 1
            if last > first:
                pieces.append(cut_segments(packet, start, segment_bytes, first, last))
            first = last + 1
        return pieces

    def _is_lost(self) -> bool:
        is_lost = self.loss > 0 and self.random.random() < self.loss
        self.lost += is_lost
        self.carried += not is_lost
        return is_lost

    def arrival_time(self, size_bytes: int, now: float) -> float | None:
        """The arrival time; None if the packet is lost because the queue is full."""
        if self.bytes_per_second:
            if self.free_at - now > QUEUE_SECONDS_MAX:
                self.lost += 1
                return None
            now = self.free_at = max(now, self.free_at) + size_bytes / self.bytes_per_second
        self.carried_bytes += size_bytes
        delay = self.delay_ms / 1000
        if self.reorder and self.random.random() < self.reorder:
            self.reordered += 1
            delay = 1.5 * delay + 0.001
        return now + delay


def payload_start(packet: bytes) -> int:
    ip_start = VNET.size
    tcp_start = ip_start + 4 * (packet[ip_start] & 0x0F)
    return tcp_start + 4 * (packet[tcp_start + 12] >> 4)


def cut_segments(packet: bytes, start: int, segment_bytes: int, first: int, last: int) -> bytes:
    """Segments `first` to before `last` of a TCP/IPv4 packet, as a packet of their own.

    Its TCP checksum is unchanged: the receiving kernel takes it as one that the device would still fill in.
    """
    payload = packet[start + first * segment_bytes : start + last * segment_bytes]
    headers = bytearray(packet[:start])
    ip_start = VNET.size
    tcp_start = ip_start + 4 * (headers[ip_start] & 0x0F)
    if last - first == 1:
        headers[1] = KIND_NONE
        headers[4:6] = b"\0\0"
    (sequence,) = struct.unpack_from(">I", headers, tcp_start + 4)
    struct.pack_into(">I", headers, tcp_start + 4, (sequence + first * segment_bytes) & 0xFFFFFFFF)
    if start + last * segment_bytes < len(packet):
        headers[tcp_start + 13] &= ~FIN_AND_PUSH
    if first:
        headers[tcp_start + 13] &= ~CWR
    (identity,) = struct.unpack_from(">H", headers, ip_start + 4)
    struct.pack_into(">HH", headers, ip_start + 2, start - ip_start + len(payload), (identity + first) & 0xFFFF)
    struct.pack_into(">H", headers, ip_start + 10, 0)
    struct.pack_into(">H", headers, ip_start + 10, ip_checksum(bytes(headers[ip_start:tcp_start])))
    return bytes(headers) + payload


def ip_checksum(header: bytes) -> int:
    total: int = sum(struct.unpack(f">{len(header) // 2}H", header))
    while total > 0xFFFF:
        total = (total & 0xFFFF) + (total >> 16)
    return ~total & 0xFFFF


class Forwarder:
    """All devices, and the packets in flight."""

    def __init__(self, devices: list[int], seed: int) -> None:
        self.devices = devices
        hosts = range(1, len(devices) + 1)
        self.directions = {
            (one, other): Direction(one, other, seed) for one in hosts for other in hosts if one != other
        }
        self._in_flight: list[tuple[float, int, int, bytes]] = []  # arrival time, sequence number, device, packet
        self._sequence = 0
        self._input = b""

    def run(self) -> None:
        watched = [*self.devices, 0]
        while True:
            seconds = max(0.0, self._in_flight[0][0] - time.monotonic()) if self._in_flight else None
            readable, _, _ = select.select(watched, (), (), seconds)
            for descriptor in readable:
                if descriptor:
                    self._read_packets(descriptor)
                elif not self._read_commands():
                    return
            self._deliver()

    def _read_packets(self, device: int) -> None:
        source, now = self.devices.index(device) + 1, time.monotonic()
        for _ in range(READS_PER_TURN):
            try:
                packet = os.read(device, READ_BYTES)
            except BlockingIOError:
                return
            at = VNET.size
            if packet[at] >> 4 != 4:  # router solicitations of IPv6
                continue
            direction = self.directions.get((source, packet[at + 19]))
            if direction is None:
                continue
            target = self.devices[packet[at + 19] - 1]
            for piece in direction.survivors(packet):
                due = direction.arrival_time(len(piece) - at, now)
                if due is not None:
                    self._sequence += 1
                    heapq.heappush(self._in_flight, (due, self._sequence, target, piece))

    def _deliver(self) -> None:
        under_way, now = self._in_flight, time.monotonic()
        while under_way and under_way[0][0] <= now:
            _, _, device, packet = heapq.heappop(under_way)
            os.write(device, packet)

    def _read_commands(self) -> bool:
        said = os.read(0, READ_BYTES)
        *lines, self._input = (self._input + said).split(b"\n")
        for line in lines:
            for change in json.loads(line):
                self.directions[change["source"], change["target"]].change(change)
            write_answer([self._counts(*names, each) for names, each in self.directions.items()])
        return bool(said)

    def _counts(self, source: int, target: int, direction: Direction) -> dict[str, Any]:
        names = ("loss", "delay_ms", "carried", "lost", "reordered", "carried_bytes")
        return {"source": source, "target": target, **{name: getattr(direction, name) for name in names}}


def make_host(number: int) -> tuple[int, int]:
    """Create a namespace, in which this process is from then on, and its device: returns both descriptors."""
    if ctypes.CDLL(None, use_errno=True).unshare(CLONE_NEWNET):
        raise OSError(ctypes.get_errno(), "no network namespace can be made here (are we root?)")
    try:
        device = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK)
    except OSError as problem:
        raise OSError(problem.errno, f"there is no /dev/net/tun ({problem.strerror})") from None
    fcntl.ioctl(device, TUNSETIFF, struct.pack("16sH14x", b"lossy0", IFF_TUN | IFF_NO_PI | IFF_VNET_HDR))
    fcntl.ioctl(device, TUNSETOFFLOAD, OFFLOAD_CHECKSUM | OFFLOAD_TSO4)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:

        def configure(command: int, name: bytes, value: bytes) -> None:
            fcntl.ioctl(any_socket, command, struct.pack("16s", name) + value.ljust(24, b"\0"))

        def address(text: str) -> bytes:
            return struct.pack("HH4s8x", socket.AF_INET, 0, socket.inet_aton(text))

        configure(SIOCSIFFLAGS, b"lo", struct.pack("H", IFF_UP))
        configure(SIOCSIFADDR, b"lossy0", address(f"{NETWORK}.{number}"))
        configure(SIOCSIFNETMASK, b"lossy0", address("255.255.255.0"))
        configure(SIOCSIFMTU, b"lossy0", struct.pack("i", MTU_BYTES))
        configure(SIOCSIFTXQLEN, b"lossy0", struct.pack("i", QUEUE_PACKETS))
        configure(SIOCSIFFLAGS, b"lossy0", struct.pack("H", IFF_UP))
    return os.open("/proc/self/ns/net", os.O_RDONLY), device


def write_answer(said: object) -> None:
    print(json.dumps(said), flush=True)


def main() -> None:
    hosts, seed = int(sys.argv[1]), int(sys.argv[2])
    try:
        made = [make_host(number) for number in range(1, hosts + 1)]
    except OSError as problem:
        write_answer({"problem": problem.strerror})
        return
    with contextlib.suppress(OSError):
        os.nice(-10)  # scheduling delays would add to the configured ones
    write_answer({"namespaces": [namespace for namespace, _ in made]})
    Forwarder([device for _, device in made], seed).run()


if __name__ == "__main__":
    main()
