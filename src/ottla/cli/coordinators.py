"""Whether a broker has coordinators for consumer groups and for transactions.

A broker that has none does not offer their requests at all, which is known at once; one that has them may answer
"not available" for a moment while it starts.
"""

from __future__ import annotations

from ottla.client.client import Client

JOIN_GROUP = 11  # API keys
END_TRANSACTION = 26
NO_GROUPS = "this broker has no consumer groups: leave out --group to read all partitions"
NO_TRANSACTIONS = "this broker has no transactions: leave out the transactional id"


def has_groups(client: Client) -> bool:
    return client.offers(JOIN_GROUP)


def has_transactions(client: Client) -> bool:
    return client.offers(END_TRANSACTION)
