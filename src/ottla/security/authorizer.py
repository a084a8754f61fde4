"""Who may do what: the broker's authorizer, switched on with `authorizer.class.name`.

Answers come from a table of earlier ones: it is thrown away as a whole when rules change, and when it is full. In
permissive mode nobody is refused anything, and what would be refused is noted.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, NamedTuple

from ottla.base.security import Operation, ResourceType
from ottla.security.acls import AclBinding, AclIndex, Acls, ResourcePattern
from ottla.security.denials import Denial, DenialLog

DECISIONS_MAX: Final = 50_000
NAME_LENGTH_MAX: Final = 300  # of what is kept in the table; a topic's name has at most 249 characters
ANY_NAME: Final = "hardcode"  # what Kafka asks about to learn whether somebody may do something to anything


class Explanation(NamedTuple):
    """An answer and where it comes from."""

    is_allowed: bool
    rule: str  # in Kafka's words: SuperUser, DefaultDeny, DefaultAllow, MatchingAcl(...)
    binding: AclBinding | None = None


class Authorizer:
    """One a broker; owned by its loop."""

    def __init__(
        self,
        acls: Acls,
        super_users: Iterable[str] = (),
        *,
        allows_without_rules: bool = False,
        is_permissive: bool = False,
        denials: DenialLog | None = None,
    ) -> None:
        self.super_users = frozenset(super_users)
        self.allows_without_rules = allows_without_rules
        self.is_permissive = is_permissive
        self._denials = denials
        self._acls = acls
        self._index = AclIndex(acls)
        # By resource type and operation; numbers are cheaper places in a list than parts of a key.
        self._decisions: list[list[dict[tuple[str, str, str], bool]]] = []
        self._count = 0
        self._forget()

    def __repr__(self) -> str:
        mode = "permissive" if self.is_permissive else "enforcing"
        return f"<Authorizer {mode} patterns={len(self._acls)} decisions={self._count}>"

    @property
    def acls(self) -> Acls:
        return self._acls

    def take(self, acls: Acls, changed: Iterable[ResourcePattern] | None = None) -> None:
        """The rules from now on; `changed` names the patterns that differ, if that is known."""
        before = self._acls
        if changed is None:
            changed = [pattern for pattern in acls if acls[pattern] != before.get(pattern)]
            changed += [pattern for pattern in before if pattern not in acls]
        for pattern in changed:
            self._index.put(pattern, acls.get(pattern, frozenset()))
        self._acls = acls
        self._forget()

    def is_granted(
        self, principal: str, host: str, operation: Operation, resource_type: ResourceType, name: str
    ) -> bool:
        """What the rules say."""
        known = self._decisions[resource_type][operation]
        key = (principal, host, name)
        decision = known.get(key)
        if decision is None:
            decision = self.explain(principal, host, operation, resource_type, name).is_allowed
            self._note(known, key, decision)
        return decision

    def is_any_granted(self, principal: str, host: str, operation: Operation, resource_type: ResourceType) -> bool:
        """Whether there is a resource of the type to which this may be done, whether it exists or not."""
        known = self._decisions[resource_type][operation]
        key = (principal, host, "")  # the name of no resource
        decision = known.get(key)
        if decision is None:
            decision = self.explain(principal, host, operation, resource_type, ANY_NAME).is_allowed
            decision = decision or self._index.allows_any(principal, host, operation, resource_type)
            self._note(known, key, decision)
        return decision

    def refuses(
        self, principal: str, host: str, operation: Operation, resource_type: ResourceType, name: str, api: str
    ) -> bool:
        """Note that the rules deny something; whether it is refused."""
        if self._denials is not None:
            rule = self.explain(principal, host, operation, resource_type, name).rule
            self._denials.write(Denial(principal, host, operation, resource_type, name, api, rule))
        return not self.is_permissive

    def explain(
        self, principal: str, host: str, operation: Operation, resource_type: ResourceType, name: str
    ) -> Explanation:
        """The answer with its reason; slower."""
        if principal in self.super_users:
            return Explanation(True, "SuperUser")
        verdict = self._index.judge(principal, host, operation, resource_type, name)
        if verdict.binding is not None:
            return Explanation(verdict.is_allowed, f"MatchingAcl(acl={verdict.binding})", verdict.binding)
        if verdict.has_rules or not self.allows_without_rules:
            return Explanation(False, "DefaultDeny")
        return Explanation(True, "DefaultAllow")

    def _note(self, known: dict[tuple[str, str, str], bool], key: tuple[str, str, str], decision: bool) -> None:
        if len(key[2]) > NAME_LENGTH_MAX:
            return
        if self._count >= DECISIONS_MAX:
            for row in self._decisions:
                for table in row:
                    table.clear()
            self._count = 0
        known[key] = decision
        self._count += 1

    def _forget(self) -> None:
        self._decisions = [[{} for _ in Operation] for _ in ResourceType]
        self._count = 0
