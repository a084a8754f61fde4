"""Users, ACLs and quotas of a cluster as one reviewable YAML file. Pure.

    users:
    - {user: alice, mechanism: SCRAM-SHA-512, iterations: 8192}
    rights:
    - {allow: 'User:alice', operation: [read, describe], topic: orders}
    quotas:
    - {user: alice, producer_byte_rate: 1048576}

Rules:
1. The keys are those of `ottla acls`, `ottla users` and `kafka-configs.sh`. An entry is one line, in a fixed order.
2. A missing section is ignored; an empty section ([]) requests that there are no entries.
3. Nothing is guessed: an unknown key, or a name that YAML reads as a number, is a problem with its line. All problems
   are reported at once.
4. The file contains no passwords, because brokers do not return them, not even hashed. To create a user from the file,
   add the output of `ottla security hash` (salt and salted_password), which is as secret as the password.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

from ottla.base.security import WILDCARD, Operation, PatternType, Permission
from ottla.base.text import escape
from ottla.cli.cluster_file.policy_document import (
    EntryError,
    Sections,
    add_unique,
    check_keys,
    required_number,
    required_text,
)
from ottla.client.quotas import SaltedPassword, entity_words, parse_quota
from ottla.operations.acls.acl_entries import (
    CLUSTER,
    RESOURCES,
    operation_problem,
    operation_word,
    parse_operation,
    parse_principal,
)
from ottla.operations.cluster_policy.security_policy import (
    QUOTAS,
    RIGHTS,
    SECTIONS,
    USERS,
    EntityKey,
    Login,
    Policy,
    entity_key,
)
from ottla.operations.quotas import sort_key
from ottla.pipelines.model.problems import did_you_mean
from ottla.security.acls import AccessControlEntry, AclBinding, ResourcePattern
from ottla.security.scram_credentials import HASHES, ITERATIONS_MAX, ITERATIONS_MIN, NUMBERS

USER_WORDS: Final = ("user", "mechanism", "iterations", "salt", "salted_password")
RIGHT_WORDS: Final = ("allow", "deny", "operation", *RESOURCES, "cluster", "prefixed", "host")
WORDS_OF_TYPE: Final = {resource_type: word for word, resource_type in RESOURCES.items()}
HEAD: Final = """\
# Users, ACLs and quotas. To compare the cluster with this file: ottla security apply FILE --dry-run
# Passwords are not included: brokers do not return them, not even hashed.
"""

# ---- reading


def read_policy(text: str, file: str) -> Policy:
    """Parse a policy file. Raises FileError."""
    sections = Sections(text, file, SECTIONS)
    policy = read_policy_sections(sections)
    sections.raise_problems()
    return policy


def read_policy_sections(sections: Sections) -> Policy:
    """Read users, ACLs and quotas from a file; `sections` collects the problems."""
    users: dict[tuple[str, str], Login] = {}
    rights: set[AclBinding] = set()
    quotas: dict[tuple[EntityKey, str], float] = {}
    sections.read_entries(USERS, lambda entry: add_unique(users, _user(entry)))
    sections.read_entries(RIGHTS, lambda entry: rights.update(_rights(entry)))
    sections.read_entries(QUOTAS, lambda entry: add_unique(quotas, _quotas(entry)))
    return Policy(
        users if USERS in sections else None,
        frozenset(rights) if RIGHTS in sections else None,
        quotas if QUOTAS in sections else None,
    )


def _user(entry: Mapping[str, Any]) -> Iterator[tuple[tuple[str, str], Login]]:
    check_keys(entry, USER_WORDS)
    user, mechanism = required_text(entry, "user"), required_text(entry, "mechanism")
    if mechanism not in NUMBERS:
        raise EntryError(f"unknown mechanism {mechanism!r}", "mechanism", did_you_mean(mechanism, list(NUMBERS)))
    iterations = required_number(entry, "iterations", ITERATIONS_MIN, ITERATIONS_MAX)
    password = None
    if "salt" in entry or "salted_password" in entry:
        salt, hashed = _bytes(entry, "salt"), _bytes(entry, "salted_password")
        size = hashlib.new(HASHES[mechanism]).digest_size
        if len(hashed) != size:
            raise EntryError(f"the hash of {mechanism} has {size} bytes, not {len(hashed)}", "salted_password")
        password = SaltedPassword(mechanism, iterations, salt, hashed)
    yield (user, mechanism), Login(iterations, password)


def _rights(entry: Mapping[str, Any]) -> Iterator[AclBinding]:
    check_keys(entry, RIGHT_WORDS)
    pattern = _pattern(entry)
    permissions = [word for word in ("allow", "deny") if word in entry]
    if len(permissions) != 1:
        raise EntryError("give either allow or deny, with a principal such as User:alice")
    permission = Permission.ALLOW if permissions[0] == "allow" else Permission.DENY
    try:
        principal = parse_principal(required_text(entry, permissions[0]))
    except ValueError as problem:
        raise EntryError(str(problem), permissions[0]) from None
    host = required_text(entry, "host") if "host" in entry else WILDCARD
    operations = entry.get("operation", [])
    for word in operations if isinstance(operations, list) else [operations]:
        operation = _operation(word, pattern)
        yield AclBinding(pattern, AccessControlEntry(principal, host, operation, permission))
    if not operations:
        raise EntryError("which operation? such as [read, describe], or all")


def _operation(word: object, pattern: ResourcePattern) -> Operation:
    try:
        operation = parse_operation(word if isinstance(word, str) else repr(word))
    except ValueError as problem:
        raise EntryError(str(problem), "operation") from None
    cause = operation_problem(pattern.resource_type, operation)
    if cause:
        raise EntryError(cause, "operation")
    return operation


def _pattern(entry: Mapping[str, Any]) -> ResourcePattern:
    named = [word for word in (*RESOURCES, "cluster") if word in entry]
    if len(named) != 1:
        raise EntryError(f"name one resource: {', '.join(RESOURCES)} or cluster")
    is_prefixed = entry.get("prefixed", False)
    if not isinstance(is_prefixed, bool):
        raise EntryError("prefixed is true or false", "prefixed")
    if named[0] != "cluster":
        kind = PatternType.PREFIXED if is_prefixed else PatternType.LITERAL
        return ResourcePattern(RESOURCES[named[0]], required_text(entry, named[0]), kind)
    if entry["cluster"] is not True or is_prefixed:
        raise EntryError("the cluster has no name: cluster: true", "cluster")
    return CLUSTER


def _quotas(entry: Mapping[str, Any]) -> Iterator[tuple[tuple[EntityKey, str], float]]:
    quota = parse_quota(entry)
    for key, value in quota.limits.items():
        yield (entity_key(quota.entity), key), value


def _bytes(entry: Mapping[str, Any], word: str) -> bytes:
    try:
        return base64.b64decode(required_text(entry, word), validate=True)
    except binascii.Error:
        raise EntryError(f"{word} is not base64", word) from None


# ---- writing


def policy_text(policy: Policy, notes: Iterable[str] = ()) -> str:
    """The file of a policy. The same policy always gives the same text."""
    return "".join([HEAD, *(f"# {note}\n" for note in notes), *policy_sections(policy)])


def policy_sections(policy: Policy) -> Iterator[str]:
    for name, entries in ((USERS, _user_entries), (RIGHTS, _right_entries), (QUOTAS, _quota_entries)):
        if getattr(policy, name) is not None:
            yield section_text(name, entries(policy))


def section_text(name: str, entries: Iterable[Mapping[str, object]]) -> str:
    lines = "".join(f"- {entry_text(entry)}\n" for entry in entries)
    return f"{name}:\n{lines}" if lines else f"{name}: []\n"


def entry_text(entry: Mapping[str, object]) -> str:
    """One entry on one line."""
    import yaml  # noqa: PLC0415 (an extra)

    def dump(*, allow_unicode: bool) -> str:
        text: str = yaml.safe_dump(
            dict(entry), default_flow_style=True, width=float("inf"), sort_keys=False, allow_unicode=allow_unicode
        )
        return text.rstrip("\n")

    text = dump(allow_unicode=True)
    return text if escape(text) == text else dump(allow_unicode=False)


def _user_entries(policy: Policy) -> Iterator[dict[str, object]]:
    for (user, mechanism), login in sorted((policy.users or {}).items(), key=lambda item: item[0]):
        yield user_entry(user, mechanism, login)


def user_entry(user: str, mechanism: str, login: Login) -> dict[str, object]:
    entry: dict[str, object] = {"user": user, "mechanism": mechanism, "iterations": login.iterations}
    if login.password is not None:
        entry["salt"] = base64.b64encode(login.password.salt).decode()
        entry["salted_password"] = base64.b64encode(login.password.hashed).decode()
    return entry


def _right_entries(policy: Policy) -> Iterator[dict[str, object]]:
    grouped: dict[tuple[Any, ...], list[Operation]] = {}
    for pattern, entry in sorted(policy.rights or ()):
        key = (entry.principal, pattern, entry.host, entry.permission)
        grouped.setdefault(key, []).append(entry.operation)
    for (principal, pattern, host, permission), operations in sorted(grouped.items()):
        words: dict[str, object] = {"allow" if permission is Permission.ALLOW else "deny": principal}
        words["operation"] = [operation_word(operation) for operation in sorted(operations)]
        word = WORDS_OF_TYPE.get(pattern.resource_type)
        words.update({"cluster": True} if word is None else {word: pattern.name})
        if pattern.pattern_type is PatternType.PREFIXED:
            words["prefixed"] = True
        if host != WILDCARD:
            words["host"] = host
        yield words


def _quota_entries(policy: Policy) -> Iterator[dict[str, object]]:
    grouped: dict[EntityKey, dict[str, float]] = {}
    for (entity, key), value in (policy.quotas or {}).items():
        grouped.setdefault(entity, {})[key] = value
    for entity in sorted(grouped, key=lambda key: sort_key(dict(key))):
        limits = {key: int(value) if value.is_integer() else value for key, value in sorted(grouped[entity].items())}
        yield {**entity_words(dict(entity)), **limits}
