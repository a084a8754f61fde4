"""The state of a cluster, as wanted and as found, in comparable values. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

from ottla.base.broker_settings import find_key
from ottla.base.names import INTERNAL_TOPICS
from ottla.base.placement.throttled_replicas import FOLLOWER_RATE, FOLLOWER_REPLICAS, LEADER_RATE, LEADER_REPLICAS
from ottla.operations.cluster_policy.security_policy import SECTIONS as POLICY_SECTIONS
from ottla.operations.cluster_policy.security_policy import Policy
from ottla.operations.schema_registry.schemas import UnregisteredSchema

TOPIC_DEFAULTS, TOPICS, BROKERS, GROUPS, SCHEMAS = "topic_defaults", "topics", "brokers", "groups", "schemas"
SECTIONS: Final = (TOPIC_DEFAULTS, TOPICS, BROKERS, GROUPS, SCHEMAS, *POLICY_SECTIONS)
ALL_BROKERS: Final = ""  # the broker name of cluster-wide default settings
SECRET_WORDS: Final = ("password", "secret", "jaas", "passphrase", "keystore.key", "key.pem")
# Temporary settings of replica moves; they are not part of the wanted state.
REASSIGNMENT_KEYS: Final = frozenset(
    {
        LEADER_RATE,
        FOLLOWER_RATE,
        LEADER_REPLICAS,
        FOLLOWER_REPLICAS,
        "replica.alter.log.dirs.io.max.bytes.per.second",
    }
)
# Brokers with eligible leader replicas set this for the cluster and never remove it.
NEVER_PRUNED: Final = frozenset({(ALL_BROKERS, "min.insync.replicas")})

Settings = Mapping[str, str | None]  # None: a secret, which brokers do not return


class TopicState(NamedTuple):
    """A topic; None means that the cluster's default applies and any current value is accepted."""

    partitions: int | None
    replication_factor: int | None
    settings: Settings


class SubjectState(NamedTuple):
    """The newest schema of a subject, and the compatibility level set on the subject itself."""

    draft: UnregisteredSchema | None  # None: only the level is known
    compatibility: str | None


class ClusterState(NamedTuple):
    """The state by section; None: the section is not specified."""

    topics: Mapping[str, TopicState] | None = None
    brokers: Mapping[str, Settings] | None = None  # by id
    groups: Mapping[str, Settings] | None = None
    schemas: Mapping[str, SubjectState] | None = None
    policy: Policy = Policy()
    read_only_keys: frozenset[str] = frozenset()  # read-only settings of brokers, which need a restart

    def sections(self) -> list[str]:
        return [name for name in (TOPICS, BROKERS, GROUPS, SCHEMAS) if getattr(self, name) is not None] + [
            name for name in POLICY_SECTIONS if getattr(self.policy, name) is not None
        ]


def is_internal(name: str) -> bool:
    """Whether a topic is managed by the cluster itself."""
    return name in INTERNAL_TOPICS or name.startswith("__")


def is_secret(key: str) -> bool:
    known = find_key(key)
    return known.is_sensitive if known is not None else any(word in key for word in SECRET_WORDS)
