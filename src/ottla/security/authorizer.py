"""Who may do what: the broker's authorizer, switched on with `authorizer.class.name`.

In permissive mode nobody is refused anything, and what would be refused is noted.

Thousands of new rules are put into the index a few at a time (`settle`), since others have to be served. They count at
once all the same: whoever asks about a resource has its rules put first. Only the question whether there is any
resource at all (`is_any_granted`) is answered by those that are there already, until all are.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, NamedTuple

from ottla.base.security import WILDCARD, Operation, PatternType, ResourceType
from ottla.security.acl_index import AclIndex
from ottla.security.acls import NO_ENTRIES, AclBinding, Acls, ResourcePattern
from ottla.security.denials import Denial, DenialLog

PUT_AT_ONCE: Final = 300  # patterns: a millisecond
LENGTHS_AT_ONCE: Final = 5_000  # patterns: two milliseconds
ANSWERS_MAX: Final = 10_000  # about resources of a whole type, which may take a look at all rules
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
        put_at_once: int = PUT_AT_ONCE,
    ) -> None:
        self.super_users = frozenset(super_users)
        self.allows_without_rules = allows_without_rules
        self.is_permissive = is_permissive
        self._denials = denials
        self._put_at_once = put_at_once
        self._acls = acls
        self._index = AclIndex(acls)
        self._waiting: set[ResourcePattern] = set()  # whose rules the index does not have yet
        self._waiting_lengths: list[int] = []  # of the prefixes among them
        self._is_any_length = False  # there are too many of them to look at each
        self._any_answers: dict[tuple[str, str, int, int], bool] = {}
        self.generation = 0  # of the rules: what was granted in another one is to be asked again

    def __repr__(self) -> str:
        mode = "permissive" if self.is_permissive else "enforcing"
        return f"<Authorizer {mode} patterns={len(self._acls)} waiting={len(self._waiting)}>"

    @property
    def acls(self) -> Acls:
        return self._acls

    def take(self, acls: Acls, changed: Iterable[ResourcePattern] | None = None) -> None:
        """The rules from now on; `changed` names the patterns that differ, if that is known."""
        before = self._acls
        if changed is None:
            changed = [pattern for pattern in acls if acls[pattern] != before.get(pattern)]
            changed += [pattern for pattern in before if pattern not in acls]
        changed = frozenset(changed)
        self._acls = acls
        self.generation += 1
        self._any_answers.clear()
        self._waiting |= changed
        if len(changed) <= self._put_at_once:
            self._put(changed)
        if len(changed) > LENGTHS_AT_ONCE:
            self._is_any_length = True
        elif self._waiting:
            lengths = {len(name) for _, name, pattern_type in changed if pattern_type == PatternType.PREFIXED}
            self._waiting_lengths = sorted(lengths.union(self._waiting_lengths))

    @property
    def is_settled(self) -> bool:
        return not self._waiting

    def settle(self) -> None:
        """Put some of the rules that wait into the index; to be called until `is_settled`."""
        self._put([pattern for pattern, _ in zip(self._waiting, range(self._put_at_once))])  # noqa: B905

    def _settle_about(self, resource_type: ResourceType, name: str) -> None:
        """The rules that one resource has."""
        kind = ResourceType(resource_type)
        about = [ResourcePattern(kind, name), ResourcePattern(kind, WILDCARD)]
        lengths = range(len(name) + 1) if self._is_any_length else self._waiting_lengths
        about += [
            ResourcePattern(kind, name[:length], PatternType.PREFIXED) for length in lengths if length <= len(name)
        ]
        self._put([pattern for pattern in dict.fromkeys(about) if pattern in self._waiting])

    def _put(self, patterns: Iterable[ResourcePattern]) -> None:
        for pattern in patterns:
            self._index.put(pattern, self._acls.get(pattern, NO_ENTRIES))
            self._waiting.discard(pattern)
        if not self._waiting:
            self._waiting_lengths, self._is_any_length = [], False
            self._any_answers.clear()

    def is_granted(
        self, principal: str, host: str, operation: Operation, resource_type: ResourceType, name: str
    ) -> bool:
        """What the rules say."""
        if principal in self.super_users:
            return True
        if self._waiting:
            self._settle_about(resource_type, name)
        if self._index.allows(principal, host, operation, resource_type, name):
            return True
        return self.allows_without_rules and not self._index.has_rules(resource_type, name)

    def is_any_granted(self, principal: str, host: str, operation: Operation, resource_type: ResourceType) -> bool:
        """Whether there is a resource of the type to which this may be done, whether it exists or not."""
        if self.is_granted(principal, host, operation, resource_type, ANY_NAME):
            return True
        key = (principal, host, int(operation), int(resource_type))
        answer = self._any_answers.get(key)
        if answer is None:
            answer = self._index.allows_any(principal, host, operation, resource_type)
            if len(self._any_answers) >= ANSWERS_MAX:
                self._any_answers.clear()
            self._any_answers[key] = answer
        return answer

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
        is_allowed = self.is_granted(principal, host, operation, resource_type, name)
        binding = self._index.deciding(principal, host, operation, resource_type, name)
        if binding is not None:
            return Explanation(is_allowed, f"MatchingAcl(acl={binding})", binding)
        return Explanation(is_allowed, "DefaultAllow" if is_allowed else "DefaultDeny")
