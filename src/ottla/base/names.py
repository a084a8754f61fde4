"""Names of topics and partitions with Kafka's rules for them, and topic ids in Kafka's text form."""

from __future__ import annotations

import base64
import string
from typing import NamedTuple
from uuid import UUID

TOPIC_NAME_LENGTH_MAX = 249
TOPIC_NAME_CHARACTERS = frozenset(string.ascii_letters + string.digits + "._-")
AUDIT_TOPIC = "__ottla_audit"
INTERNAL_TOPICS = frozenset({"__consumer_offsets", "__transaction_state", "__share_group_state", AUDIT_TOPIC})
PIPELINE_MARKERS_TOPIC = "ottla_pipeline_markers"
BOOKKEEPING_TOPICS = INTERNAL_TOPICS | {PIPELINE_MARKERS_TOPIC}  # for brokers, all but the internal ones are usual


class TopicPartition(NamedTuple):
    """One partition of one topic; its text is the name of its folder in Kafka."""

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


def is_bookkeeping(name: str) -> bool:
    """Topics that the cluster or a service keeps for itself, by custom with an underscore in front (`_schemas`)."""
    return name in BOOKKEEPING_TOPICS or name.startswith("_")


def topic_name_problem(name: str) -> str | None:
    """Why a topic cannot have this name, or None."""
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
    """Names with the same key would share their metric names, so Kafka refuses the second."""
    return name.replace(".", "_")


_BASE64 = frozenset(string.ascii_letters + string.digits + "-_")


def id_text(topic_id: UUID) -> str:
    """A topic id in URL-safe base64, without padding."""
    return base64.urlsafe_b64encode(topic_id.bytes).rstrip(b"=").decode()


def parse_id(text: str) -> UUID:
    """Parses a topic id; raises ValueError with Kafka's message."""
    if len(text) > 24:
        raise ValueError(f"Input string with prefix `{text[:24]}` is too long to be decoded as a base64 UUID")
    for letter in text.rstrip("="):
        if letter not in _BASE64:
            raise ValueError(f"Illegal base64 character {ord(letter):x}")
    try:
        data = base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))
    except ValueError:
        raise ValueError(f"Input string `{text}` is not a base64-encoded UUID") from None
    if len(data) != 16:
        raise ValueError(
            f"Input string `{text}` decoded as {len(data)} bytes, which is not equal to the expected 16 bytes "
            "of a base64-encoded UUID"
        )
    return UUID(bytes=data)
