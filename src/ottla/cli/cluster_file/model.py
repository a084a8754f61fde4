"""What a cluster shall be and what it is: the same values, so that they can be compared. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

from ottla.base.broker_settings import find_key
from ottla.base.names import INTERNAL_TOPICS
from ottla.base.placement.throttled import FOLLOWER_RATE, FOLLOWER_REPLICAS, LEADER_RATE, LEADER_REPLICAS
from ottla.cli.security.policy import SECTIONS as POLICY_SECTIONS
from ottla.cli.security.policy import Policy
from ottla.operations.schema_registry.schemas import Draft

TOPIC_DEFAULTS, TOPICS, BROKERS, GROUPS, SCHEMAS = "topic_defaults", "topics", "brokers", "groups", "schemas"
SECTIONS: Final = (TOPIC_DEFAULTS, TOPICS, BROKERS, GROUPS, SCHEMAS, *POLICY_SECTIONS)
ALL_BROKERS: Final = ""  # as the name of a broker: settings that all of them share
SECRET_WORDS: Final = ("password", "secret", "jaas")
# Whoever moves replicas sets these for as long as it lasts: they are no wish of anybody about the cluster.
OF_MOVES: Final = frozenset(
    {
        LEADER_RATE,
        FOLLOWER_RATE,
        LEADER_REPLICAS,
        FOLLOWER_REPLICAS,
        "replica.alter.log.dirs.io.max.bytes.per.second",
    }
)
# Brokers that count eligible leaders set it for all of them, and never let it go.
KEPT: Final = frozenset({(ALL_BROKERS, "min.insync.replicas")})

Settings = Mapping[str, str | None]  # None: a secret, which no broker tells


class TopicState(NamedTuple):
    """None: the cluster decides when the topic is made, and whatever it is afterwards is right."""

    partitions: int | None
    replication_factor: int | None
    settings: Settings


class SubjectState(NamedTuple):
    """The newest schema of a subject, and the level of compatibility that is set for just this subject."""

    draft: Draft | None  # None: only the level is told
    compatibility: str | None


class ClusterState(NamedTuple):
    """None: nothing is said about that."""

    topics: Mapping[str, TopicState] | None = None
    brokers: Mapping[str, Settings] | None = None  # by id
    groups: Mapping[str, Settings] | None = None
    schemas: Mapping[str, SubjectState] | None = None
    policy: Policy = Policy()
    fixed: frozenset[str] = frozenset()  # settings of brokers that only a restart changes

    def sections(self) -> list[str]:
        return [name for name in (TOPICS, BROKERS, GROUPS, SCHEMAS) if getattr(self, name) is not None] + [
            name for name in POLICY_SECTIONS if getattr(self.policy, name) is not None
        ]


def is_internal(name: str) -> bool:
    """Topics that the cluster makes and keeps for itself."""
    return name in INTERNAL_TOPICS or name.startswith("__")


def is_of_a_service(name: str) -> bool:
    """Names with an underscore in front are, by custom, not made by people: `_schemas` is the registry's."""
    return name.startswith("_")


def is_secret(key: str) -> bool:
    known = find_key(key)
    return known.is_sensitive if known is not None else any(word in key for word in SECRET_WORDS)
