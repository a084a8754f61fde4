"""AlterUserScramCredentials (KIP-554). Pure; error codes and messages are Kafka's.

Credentials are settings of the user, named by their mechanisms, next to others such as quotas. The credentials of a
user change completely or not at all; other users of the request are processed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from ottla.base.errors import Error, KafkaError
from ottla.controller import tree
from ottla.controller.decisions.decision import Decision, check_readable, config_operations
from ottla.controller.image import MetadataImage
from ottla.controller.stores.store import StoreOperation
from ottla.security.scram_credentials import ITERATIONS_MAX, ITERATIONS_MIN, MECHANISMS, credential_from_salted


class ScramDeletion(NamedTuple):
    """A credential to delete."""

    name: str
    mechanism: int


class ScramUpsertion(NamedTuple):
    """A credential to set, with its salted password."""

    name: str
    mechanism: int
    iterations: int
    salt: bytes
    salted_password: bytes

    def __repr__(self) -> str:
        return f"<ScramUpsertion {self.name!r} {self.mechanism}>"


class ScramResult(NamedTuple):
    """The result for one user."""

    name: str
    error: Error = Error.NONE
    message: str | None = None


def decide_scram_changes(
    image: MetadataImage, deletions: Sequence[ScramDeletion], upsertions: Sequence[ScramUpsertion]
) -> Decision[list[ScramResult]]:
    """Return one result for each user, in the order of the request."""
    changes: list[ScramDeletion | ScramUpsertion] = [*deletions, *upsertions]
    named = Counter((each.name, each.mechanism) for each in changes)
    problems: dict[str, KafkaError] = {}
    changed: dict[str, dict[str, str]] = {}
    for change in changes:
        try:
            if named[change.name, change.mechanism] > 1:
                raise KafkaError(
                    Error.DUPLICATE_RESOURCE, "A user credential cannot be altered twice in the same request"
                )
            config = changed.setdefault(change.name, dict(image.user_configs.get(change.name, {})))
            _apply_change(image, change, config)
        except KafkaError as refusal:
            problems.setdefault(change.name, refusal)
    names = dict.fromkeys(each.name for each in changes)
    good = {name: config for name, config in changed.items() if name not in problems}
    operations: list[StoreOperation] = []
    for name, config in good.items():
        operations.extend(config_operations(tree.USER_CONFIG, name, config, exists=name in image.user_configs))
    results = [
        ScramResult(name, problems[name].error, problems[name].message) if name in problems else ScramResult(name)
        for name in names
    ]
    return Decision(tuple(operations), image.with_user_configs(good) if good else image, results)


def _apply_change(image: MetadataImage, change: ScramDeletion | ScramUpsertion, config: dict[str, str]) -> None:
    if not change.name:
        raise KafkaError(Error.UNACCEPTABLE_CREDENTIAL, "Username must not be empty")
    mechanism = MECHANISMS.get(change.mechanism)
    if mechanism is None:
        raise KafkaError(Error.UNSUPPORTED_SASL_MECHANISM, "Unknown SCRAM mechanism")
    check_readable(image, tree.config_path(tree.USER_CONFIG, change.name))
    if isinstance(change, ScramDeletion):
        if config.pop(mechanism, None) is None:
            raise KafkaError(Error.RESOURCE_NOT_FOUND, "Attempt to delete a user credential that does not exist")
        return
    if change.iterations < ITERATIONS_MIN:
        raise KafkaError(Error.UNACCEPTABLE_CREDENTIAL, "Too few iterations")
    if change.iterations > ITERATIONS_MAX:
        raise KafkaError(Error.UNACCEPTABLE_CREDENTIAL, "Too many iterations")
    if not change.salt or not change.salted_password:
        raise KafkaError(Error.UNACCEPTABLE_CREDENTIAL, "Salt and salted password must not be empty")
    config[mechanism] = credential_from_salted(
        mechanism, change.salted_password, change.salt, change.iterations
    ).to_text()


def credentials_of(config: Mapping[str, str]) -> dict[int, str]:
    """Return the credentials among a user's settings, by mechanism number."""
    return {number: config[name] for number, name in MECHANISMS.items() if name in config}
