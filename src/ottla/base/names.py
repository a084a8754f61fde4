"""Names of topics and partitions, and what Kafka allows in them."""

from __future__ import annotations

import string
from typing import NamedTuple

TOPIC_NAME_LENGTH_MAX = 249
TOPIC_NAME_CHARACTERS = frozenset(string.ascii_letters + string.digits + "._-")
AUDIT_TOPIC = "__ottla_audit"
INTERNAL_TOPICS = frozenset({"__consumer_offsets", "__transaction_state", "__share_group_state", AUDIT_TOPIC})


class TopicPartition(NamedTuple):
    """One partition of one topic; prints as Kafka names its folder."""

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


def topic_name_problem(name: str) -> str | None:
    """Why a topic may not have this name, or None if it may."""
    if not name:
        return "Topic name is invalid: the empty string is not allowed"
    if name in (".", ".."):
        return f"Topic name is invalid: '{name}' is not allowed"
    if len(name) > TOPIC_NAME_LENGTH_MAX:
        longest = f"the max allowed length {TOPIC_NAME_LENGTH_MAX}"
        return f"Topic name is invalid: the length of '{name}' is longer than {longest}"
    if not TOPIC_NAME_CHARACTERS.issuperset(name):
        return (
            f"Topic name is invalid: '{name}' contains one or more characters other than "
            "ASCII alphanumerics, '.', '_' and '-'"
        )
    return None


def topic_name_collision_key(name: str) -> str:
    """Two names with the same key would share their metric names: Kafka refuses the second."""
    return name.replace(".", "_")
