"""The broker's authorizer, enabled with `authorizer.class.name`. Compiled with mypyc where possible.

Which rules win (deny over allow): acl_index.py. In permissive mode no request is rejected; denials are only logged.

Thousands of new rules are indexed in steps (`index_pending`), so that other requests are served in between. They take
effect at once nevertheless: the rules of a resource are indexed before a request about it is decided. Only
`is_any_granted`, which is about any resource, uses the rules that are indexed so far.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, NamedTuple

from ottla.base.security import WILDCARD, Operation, PatternType, ResourceType
from ottla.security.acl_index import AclIndex
from ottla.security.acls import NO_ENTRIES, AclBinding, Acls, ResourcePattern
from ottla.security.denial_log import Denial, DenialLog

INDEXED_PER_STEP: Final = 300  # patterns per step: a millisecond
PREFIX_LENGTHS_MAX: Final = 5_000  # patterns: two milliseconds
ANSWERS_MAX: Final = 10_000  # cached results about whole resource types, which may require a search of all rules
ANY_RESOURCE_NAME: Final = "hardcode"  # the name that Kafka uses for any resource


class Explanation(NamedTuple):
    """A decision and its reason."""

    is_allowed: bool
    rule: str  # under Kafka's name: SuperUser, DefaultDeny, DefaultAllow, MatchingAcl(...)
    binding: AclBinding | None = None


class Authorizer:
    """One per broker; used only on its event loop."""

    def __init__(
        self,
        acls: Acls,
        super_users: Iterable[str] = (),
        *,
        allows_without_rules: bool = False,
        is_permissive: bool = False,
        denials: DenialLog | None = None,
        put_at_once: int = INDEXED_PER_STEP,
    ) -> None:
        self.super_users = frozenset(super_users)
        self.allows_without_rules = allows_without_rules
        self.is_permissive = is_permissive
        self._denials = denials
        self._put_at_once = put_at_once
        self._acls = acls
        self._index = AclIndex(acls)
        self._pending_patterns: set[ResourcePattern] = set()  # patterns that are not indexed yet
        self._pending_prefix_lengths: list[int] = []  # of the prefixes among them
        self._checks_all_prefix_lengths = False  # too many lengths to check each one
        self._any_answers: dict[tuple[str, str, int, int], bool] = {}
        self.generation = 0  # generation of the rules: a change invalidates granted access

    def __repr__(self) -> str:
        mode = "permissive" if self.is_permissive else "enforcing"
        return f"<Authorizer {mode} patterns={len(self._acls)} waiting={len(self._pending_patterns)}>"

    @property
    def acls(self) -> Acls:
        return self._acls

    def update(self, acls: Acls, changed: Iterable[ResourcePattern] | None = None) -> None:
        """Replace the rules; `changed` contains the patterns that differ, if known."""
        before = self._acls
        if changed is None:
            changed = [pattern for pattern in acls if acls[pattern] != before.get(pattern)]
            changed += [pattern for pattern in before if pattern not in acls]
        changed = frozenset(changed)
        self._acls = acls
        self.generation += 1
        self._any_answers.clear()
        self._pending_patterns |= changed
        if len(changed) <= self._put_at_once:
            self._index_patterns(changed)
        if len(changed) > PREFIX_LENGTHS_MAX:
            self._checks_all_prefix_lengths = True
        elif self._pending_patterns:
            lengths = {len(name) for _, name, pattern_type in changed if pattern_type == PatternType.PREFIXED}
            self._pending_prefix_lengths = sorted(lengths.union(self._pending_prefix_lengths))

    @property
    def is_fully_indexed(self) -> bool:
        return not self._pending_patterns

    def index_pending(self) -> None:
        """Index some of the pending rules; call until `is_fully_indexed`."""
        self._index_patterns([pattern for pattern, _ in zip(self._pending_patterns, range(self._put_at_once))])  # noqa: B905

    def _index_resource(self, resource_type: ResourceType, name: str) -> None:
        """Index the rules of one resource."""
        kind = ResourceType(resource_type)
        about = [ResourcePattern(kind, name), ResourcePattern(kind, WILDCARD)]
        lengths = range(len(name) + 1) if self._checks_all_prefix_lengths else self._pending_prefix_lengths
        about += [
            ResourcePattern(kind, name[:length], PatternType.PREFIXED) for length in lengths if length <= len(name)
        ]
        self._index_patterns([pattern for pattern in dict.fromkeys(about) if pattern in self._pending_patterns])

    def _index_patterns(self, patterns: Iterable[ResourcePattern]) -> None:
        for pattern in patterns:
            self._index.put(pattern, self._acls.get(pattern, NO_ENTRIES))
            self._pending_patterns.discard(pattern)
        if not self._pending_patterns:
            self._pending_prefix_lengths, self._checks_all_prefix_lengths = [], False
            self._any_answers.clear()

    def is_granted(
        self, principal: str, host: str, operation: Operation, resource_type: ResourceType, name: str
    ) -> bool:
        """Return whether the rules allow the operation."""
        if principal in self.super_users:
            return True
        if self._pending_patterns:
            self._index_resource(resource_type, name)
        if self._index.allows(principal, host, operation, resource_type, name):
            return True
        return self.allows_without_rules and not self._index.has_rules(resource_type, name)

    def is_any_granted(self, principal: str, host: str, operation: Operation, resource_type: ResourceType) -> bool:
        """Return whether the operation is allowed on any resource of the type, existing or not."""
        if self.is_granted(principal, host, operation, resource_type, ANY_RESOURCE_NAME):
            return True
        key = (principal, host, int(operation), int(resource_type))
        answer = self._any_answers.get(key)
        if answer is None:
            answer = self._index.allows_any(principal, host, operation, resource_type)
            if len(self._any_answers) >= ANSWERS_MAX:
                self._any_answers.clear()
            self._any_answers[key] = answer
        return answer

    def record_denial(
        self, principal: str, host: str, operation: Operation, resource_type: ResourceType, name: str, api: str
    ) -> bool:
        """Log a denial; true if the request must be rejected."""
        denials = self._denials
        if denials is not None:
            denial = Denial(principal, host, operation, resource_type, name, api)
            if denials.is_due(denial):
                rule = self.explain(principal, host, operation, resource_type, name).rule
                denials.write(denial._replace(rule=rule))
        return not self.is_permissive

    def explain(
        self, principal: str, host: str, operation: Operation, resource_type: ResourceType, name: str
    ) -> Explanation:
        """Return the decision with its reason; slower."""
        if principal in self.super_users:
            return Explanation(True, "SuperUser")
        is_allowed = self.is_granted(principal, host, operation, resource_type, name)
        binding = self._index.deciding_binding(principal, host, operation, resource_type, name)
        if binding is not None:
            return Explanation(is_allowed, f"MatchingAcl(acl={binding})", binding)
        return Explanation(is_allowed, "DefaultAllow" if is_allowed else "DefaultDeny")
