"""The nodes of delegation tokens in the metadata store, as Kafka 3.9 stores them in ZooKeeper: one node for each token.

`/delegation_token/tokens/<id>` has the owner and the validity of a token; its password is not stored. Brokers of Kafka
create a notification below `/delegation_token/token_changes` for each change; ottla's brokers get tokens from their
controller and need none. All functions are pure. A token whose node cannot be read is not valid until it can.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from ottla.base.security import SEPARATOR
from ottla.controller import tree
from ottla.controller.stores.store import Node
from ottla.security.delegation_tokens import DelegationToken

ROOT: Final = "/delegation_token"
TOKENS: Final = f"{ROOT}/tokens"
CHANGE_NOTIFICATIONS: Final = f"{ROOT}/token_changes"
PERSISTENT_PATHS: Final = (ROOT, TOKENS, CHANGE_NOTIFICATIONS)  # nodes that exist in every cluster, parents first
NODE_VERSION: Final = 3  # since tokens have requesters; before that the requester was the owner

Read = Callable[[str, Callable[[], DelegationToken]], DelegationToken | None]


def token_path(token_id: str) -> str:
    return f"{TOKENS}/{token_id}"


def encode_token(token: DelegationToken) -> bytes:
    return tree.to_json(
        {
            "version": NODE_VERSION,
            "owner": tree.sanitize(token.owner),
            "tokenRequester": tree.sanitize(token.token_requester),
            "renewers": [tree.sanitize(each) for each in token.renewers],
            "issueTimestamp": token.issue_ms,
            "maxTimestamp": token.max_ms,
            "expiryTimestamp": token.expiry_ms,
            "tokenId": token.token_id,
        }
    )


def decode_token(path: str, data: bytes) -> DelegationToken:
    with tree.reading(path):
        fields = tree.from_json(data)
        version = int(fields["version"])
        if not 1 <= version <= NODE_VERSION:
            raise ValueError(f"version {version} is not known")
        token_id = str(fields["tokenId"])
        if path != token_path(token_id):
            raise ValueError("it contains another token")
        owner = decode_principal(fields["owner"])
        return DelegationToken(
            token_id,
            owner,
            decode_principal(fields["tokenRequester"]) if version >= NODE_VERSION else owner,
            tuple(map(decode_principal, fields["renewers"])),
            *(tree.int32(fields[name], bits=64) for name in ("issueTimestamp", "maxTimestamp", "expiryTimestamp")),
        )


def decode_principal(text: Any) -> str:
    from urllib.parse import unquote  # noqa: PLC0415 (rarely needed, and slow to import)

    principal = unquote(str(text))
    if SEPARATOR not in principal:
        raise ValueError("a principal without a type")
    return principal


def load_tokens(nodes: Mapping[str, Node], read: Read) -> dict[str, DelegationToken]:
    """Return the tokens in a tree of nodes; `read` records a damaged node and returns None for it."""
    prefix = f"{TOKENS}/"
    found: dict[str, DelegationToken] = {}
    for path, node in nodes.items():
        if path.startswith(prefix):
            token = load_token(path, node, read)
            if token is not None:
                found[token.token_id] = token
    return found


def load_token(path: str, node: Node, read: Read) -> DelegationToken | None:
    return read(path, lambda: decode_token(path, node.data))


def decode_changed_token(data: bytes) -> str | None:
    """Decode a notification of a changed token; None if it cannot be read."""
    try:
        token_id = data.decode()
    except UnicodeDecodeError:
        return None
    return token_id if token_id and "/" not in token_id else None
