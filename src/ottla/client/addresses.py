"""Broker addresses: `host:port`, `[::1]:9092`, several separated by commas."""

from __future__ import annotations

from typing import NamedTuple

from ottla.client.errors import ClientError

DEFAULT_PORT = 9092
ADDRESSES_MAX = 1000
PORT_DIGITS_MAX = 20
NON_HOST_CHARACTERS = frozenset("/\\@?#\x7f")  # these characters suggest a URL or a file


class Address(NamedTuple):
    """The address of a broker; its text is `host:port`."""

    host: str
    port: int

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{host}:{self.port}"


def parse_bootstrap(text: str) -> list[Address]:
    """All addresses of a --bootstrap-server value; the default port is Kafka's."""
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
    if not host or not is_port or any(each in NON_HOST_CHARACTERS or each <= " " for each in host):
        raise _bad_address(text)
    number = int(port or DEFAULT_PORT)
    if not 0 < number < 65536:
        raise _bad_address(text)
    return Address(host, number)


def _bad_address(text: str) -> ClientError:
    return ClientError(f"{text!r} is not a broker address: write host:port, for example 127.0.0.1:9092")
