"""The nodes of client quotas in the metadata store, as Kafka 3.9 stores them in ZooKeeper.

    /config/users/alice                     all clients of a user together, next to the user's passwords
    /config/users/alice/clients/app         one client id of a user
    /config/clients/app                     a client id
    /config/ips/10.0.0.1                    an address

`<default>` is the default entity of a kind. The image has the first kind among its users, and the others by their paths
below /config, with the parents of clients of users: the controller needs to know which nodes exist.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from ottla.controller import tree
from ottla.controller.stores.store import Node
from ottla.quotas.entities import CLIENT_ID, IP, USER, Entity, of_address, of_client, of_user, of_user_and_client

USERS: Final = tree.USER_CONFIG
CLIENTS: Final = "clients"
IPS: Final = "ips"
NODES_BY_KIND: Final = {USER: USERS, CLIENT_ID: CLIENTS, IP: IPS}

Config = Mapping[str, str]
Read = Callable[[str, Callable[[], Config]], Config | None]


def quota_path(entity: Entity) -> str:
    """Return the path of an entity below /config."""
    return "/".join(f"{NODES_BY_KIND[kind]}/{encode_entity_name(name)}" for kind, name in entity.parts)


def quota_entity(path: str) -> Entity | None:
    """Return the inverse of quota_path(); None for any other path."""
    match path.split("/"):
        case ["users", user]:
            return of_user(decode_entity_name(user))
        case ["users", user, "clients", client]:
            return of_user_and_client(decode_entity_name(user), decode_entity_name(client))
        case ["clients", client]:
            return of_client(decode_entity_name(client))
        case ["ips", address]:
            return of_address(decode_entity_name(address))
    return None


def is_quota_path(path: str) -> bool:
    """Return whether the image has this node by path; it has users by name."""
    kind, _, rest = path.partition("/")
    if kind == USERS:
        below = rest.split("/")[1:]
        return below[:1] == [CLIENTS] and len(below) <= 2
    return kind in (CLIENTS, IPS) and rest != "" and "/" not in rest


def parent_paths(path: str) -> list[str]:
    """Return the nodes above one of a client of a user: the user's own, and that of all its clients."""
    parts = path.split("/")
    return ["/".join(parts[:2]), "/".join(parts[:3])] if len(parts) == 4 else []


def load_quota_configs(nodes: Mapping[str, Node], read: Read, known: Mapping[str, Config]) -> dict[str, Config]:
    prefix = f"{tree.CONFIG}/"
    found: dict[str, Config] = {}
    for full, node in nodes.items():
        path = full.removeprefix(prefix)
        if path is not full and is_quota_path(path):
            found[path] = load_quota_config(path, node, read, known)
    return found


def load_quota_config(path: str, node: Node, read: Read, known: Mapping[str, Config]) -> Config:
    full = f"{tree.CONFIG}/{path}"
    config = read(full, lambda: tree.decode_config(full, node.data))
    return known.get(path, {}) if config is None else config


def encode_entity_name(name: str | None) -> str:
    return tree.DEFAULT_ENTITY if name is None else tree.sanitize(name)


def decode_entity_name(node_name: str) -> str | None:
    from urllib.parse import unquote  # noqa: PLC0415 (rarely needed, and slow to import)

    return None if node_name == tree.DEFAULT_ENTITY else unquote(node_name)
