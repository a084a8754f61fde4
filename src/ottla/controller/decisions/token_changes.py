"""Creation, renewal and expiry of delegation tokens. Pure, by the rules of decision.py; error codes are Kafka's.

The handlers authorize the requests; these decisions depend on the metadata only.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from ottla.base.errors import Error, KafkaError
from ottla.controller.decisions.decision import Decision, check_readable
from ottla.controller.image import MetadataImage
from ottla.controller.image_loader import NodeReader
from ottla.controller.stores.store import CreateNode, DeleteNode, Node, SetNode, StoreOperation
from ottla.controller.token_nodes import encode_token, load_token, token_path
from ottla.security.delegation_tokens import DelegationToken

TOKENS_PER_OWNER_MAX: Final = 10_000
REMOVALS_PER_DECISION_MAX: Final = 1_000


def decide_create_token(image: MetadataImage, token: DelegationToken) -> Decision[DelegationToken]:
    owned = sum(each.owner == token.owner for each in image.delegation_tokens.values())
    if owned >= TOKENS_PER_OWNER_MAX:
        raise KafkaError(Error.POLICY_VIOLATION, f"{token.owner} has {owned} tokens already")
    operations = (CreateNode(token_path(token.token_id), encode_token(token)),)
    return Decision(operations, image.with_delegation_tokens({token.token_id: token}), token)


def decide_renew_token(
    image: MetadataImage, token_id: str | None, principal: str, period_ms: int, now_ms: int
) -> Decision[DelegationToken]:
    """Renew a token; the reply is the renewed token."""
    token = get_token(image, token_id)
    check_not_expired(token, now_ms)
    check_renewer(token, principal)
    return update_token(image, token._replace(expiry_ms=min(token.max_ms, now_ms + period_ms)))


def decide_expire_token(
    image: MetadataImage, token_id: str | None, principal: str, period_ms: int, now_ms: int
) -> Decision[DelegationToken]:
    """Change the expiry of a token; a negative period deletes the token, even if it has expired."""
    token = get_token(image, token_id)
    check_renewer(token, principal)
    if period_ms >= 0:
        check_not_expired(token, now_ms)
        return update_token(image, token._replace(expiry_ms=min(token.max_ms, now_ms + period_ms)))
    gone = image.with_delegation_tokens({token.token_id: None})
    return Decision((DeleteNode(token_path(token.token_id)),), gone, token)


def decide_remove_expired(image: MetadataImage, now_ms: int) -> Decision[list[DelegationToken]]:
    """Delete expired tokens, a limited number at a time; the reply has them."""
    expired = [token for token in image.delegation_tokens.values() if token.is_expired(now_ms)][
        :REMOVALS_PER_DECISION_MAX
    ]
    operations = tuple(DeleteNode(token_path(token.token_id)) for token in expired)
    after = image.with_delegation_tokens({token.token_id: None for token in expired}) if expired else image
    return Decision(operations, after, expired)


def decide_external_tokens(image: MetadataImage, token_ids: Iterable[str], nodes: Mapping[str, Node]) -> Decision[int]:
    """Load tokens from the store; the reply is the number of changed tokens."""
    reader = NodeReader(image)
    different: dict[str, DelegationToken | None] = {}
    paths = set()
    for token_id in token_ids:
        path = token_path(token_id)
        paths.add(path)
        token = load_token(path, nodes[path], reader.read) if path in nodes else None
        if token != image.delegation_tokens.get(token_id):
            different[token_id] = token
    after = image.with_delegation_tokens(different) if different else image
    return Decision((), reader.record_damage(after, paths), len(different))


# ---- checks, in Kafka's order


def get_token(image: MetadataImage, token_id: str | None) -> DelegationToken:
    """Return a token. `token_id` is None if the HMAC of the request matches no token. Raises KafkaError."""
    token = image.delegation_tokens.get(token_id or "")
    if token is None:
        raise KafkaError(Error.DELEGATION_TOKEN_NOT_FOUND)
    check_readable(image, token_path(token.token_id))
    return token


def check_not_expired(token: DelegationToken, now_ms: int) -> None:
    if token.is_expired(now_ms):
        raise KafkaError(Error.DELEGATION_TOKEN_EXPIRED)


def check_renewer(token: DelegationToken, principal: str) -> None:
    if not token.can_be_renewed_by(principal):
        raise KafkaError(Error.DELEGATION_TOKEN_OWNER_MISMATCH)


def update_token(image: MetadataImage, token: DelegationToken) -> Decision[DelegationToken]:
    operations: tuple[StoreOperation, ...] = (SetNode(token_path(token.token_id), encode_token(token)),)
    return Decision(operations, image.with_delegation_tokens({token.token_id: token}), token)
