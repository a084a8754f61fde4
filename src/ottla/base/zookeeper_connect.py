"""Parser for `zookeeper.connect`: the servers of an ensemble and the chroot of the cluster.

`zoo1:2181,zoo2:2181,zoo3:2181/kafka/east` names three servers and the chroot /kafka/east, which applies to all of them.
"""

from __future__ import annotations

from typing import Final, NamedTuple

PORT_DEFAULT: Final = 2181
PORT_MAX: Final = 65535


class ZooKeeperAddress(NamedTuple):
    """The parts of a connect string."""

    servers: tuple[tuple[str, int], ...]
    chroot: str  # "" or a path without a trailing slash

    @property
    def hosts(self) -> str:
        """The servers alone, in the form that any ZooKeeper client accepts."""
        return ",".join(f"[{host}]:{port}" if ":" in host else f"{host}:{port}" for host, port in self.servers)

    def __str__(self) -> str:
        return self.hosts + self.chroot


def parse_connect(text: str) -> ZooKeeperAddress:
    """Raises ValueError with the reason."""
    servers_text, slash, chroot = text.strip().partition("/")
    servers = tuple(_server(part.strip(), text) for part in servers_text.split(","))
    return ZooKeeperAddress(servers, _chroot(slash + chroot, text))


def _server(part: str, text: str) -> tuple[str, int]:
    host, colon, port = part.rpartition(":")
    if not colon or part.endswith("]"):
        host, port = part, str(PORT_DEFAULT)
    is_bracketed = host.startswith("[") and host.endswith("]")
    host = host.strip("[]")
    if not host or (":" in host and not is_bracketed) or any(character.isspace() for character in host):
        raise ValueError(f"{text!r} is no list of host:port[,host:port ...][/chroot]")
    if not port.isascii() or not port.isdigit() or not 0 < int(port) <= PORT_MAX:
        raise ValueError(f"{part!r} in {text!r} has no port between 1 and {PORT_MAX}")
    return host, int(port)


def _chroot(path: str, text: str) -> str:
    path = path.rstrip("/")
    names = path.split("/")[1:]
    if "," in path or ":" in path:
        raise ValueError(f"{text!r}: the chroot stands once, after the last server")
    if any(name in ("", ".", "..") for name in names):
        raise ValueError(f"{text!r}: {path!r} is no path of a node")
    return path
