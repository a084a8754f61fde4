"""Addresses of brokers as people write them: `host:port`, `[::1]:9092`, several with commas."""

from __future__ import annotations

from typing import NamedTuple

from ottla.client.errors import ClientError

DEFAULT_PORT = 9092
ADDRESSES_MAX = 1000
PORT_DIGITS_MAX = 20
NO_HOST = frozenset("/\\@?#\x7f")  # somebody meant a URL or a file


class Address(NamedTuple):
    """Where a broker listens; prints as people write it."""

    host: str
    port: int

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{host}:{self.port}"


def parse_bootstrap(text: str) -> list[Address]:
    """All addresses of a --bootstrap-server value; a missing port is Kafka's usual one."""
    parts = [part.strip() for part in text.split(",") if part.strip()]
    if not parts:
        raise ClientError("no bootstrap server given: write host:port, for example 127.0.0.1:9092")
    return [_parse_address(part) for part in parts[:ADDRESSES_MAX]]


def _parse_address(text: str) -> Address:
    address = text.rpartition("://")[2]  # Kafka accepts SSL://host:port
    host, port = address, ""
    if address.startswith("["):
        host, _, rest = address[1:].partition("]")
        port = rest.removeprefix(":")
    elif address.count(":") == 1:
        host, _, port = address.partition(":")
    is_port = port == "" or (port.isascii() and port.isdecimal() and len(port) <= PORT_DIGITS_MAX)
    if not host or not is_port or any(each in NO_HOST or each <= " " for each in host):
        raise _bad_address(text)
    number = int(port or DEFAULT_PORT)
    if not 0 < number < 65536:
        raise _bad_address(text)
    return Address(host, number)


def _bad_address(text: str) -> ClientError:
    return ClientError(f"{text!r} is not a broker address: write host:port, for example 127.0.0.1:9092")
