"""Which topics the members of a classic group read, as far as their own metadata tells."""

from __future__ import annotations

from ottla.groups.classic_group import ClassicGroup
from ottla.protocol.codec import ProtocolError
from ottla.protocol.messages.consumer_protocol import CONSUMER, Subscription, read_versioned


def subscribed_topics(group: ClassicGroup) -> set[str] | None:
    """The topics that the members read; None when nobody can tell (not consumers, or metadata of their own)."""
    if group.protocol_type != CONSUMER or group.protocol is None:
        return None
    topics: set[str] = set()
    for member in group.members.values():
        try:
            topics.update(read_versioned(Subscription, member.metadata_of(group.protocol)).topics)
        except ProtocolError:
            return None
    return topics
