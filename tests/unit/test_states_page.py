"""The page about states is generated from the tables that the code asserts.

`OTTLA_WRITE_STATES=1 pytest tests/unit/test_states_page.py` rewrites it.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from enum import Enum
from pathlib import Path

import pytest

from ottla.groups import classic_group, consumer_group
from ottla.network import peer
from ottla.transactions import transaction

PAGE = Path(__file__).parents[2] / "docs" / "states.md"
HEAD = """# States

This page shows the state machines of the code, generated from its tables (tests/unit/test_states_page.py). A transition
that is missing here fails an assertion.
"""
CLASSIC = """
## Classic groups

`groups/classic_group.py`. In memory only: the log keeps the result of a generation.
"""
MEMBERS = """
## Members of new groups

`groups/consumer_group.py` (KIP-848). Every transition is possible, because a new target may require any change. The
states differ in the epoch: a member that must give up partitions keeps its epoch until then.

| State | Epoch |
|---|---|
"""
TRANSACTIONS = """
## Transactions

`transactions/transaction.py`. Every transition is a record in `__transaction_state`. Two more states exist only in
Kafka's memory and are never written.
"""
PEERS = """
## Connections to other brokers

`network/peer.py`. A lost connection becomes idle, and is opened again by the next call.
"""
Table = Mapping[Enum, set[Enum]]


def test_the_page_matches_the_tables() -> None:
    page = "".join(
        [
            HEAD,
            CLASSIC,
            drawn(classic_group.VALID_TRANSITIONS, classic_group.ClassicGroupState.EMPTY),
            MEMBERS,
            *(f"| {state.name} | {epoch(state)} |\n" for state in consumer_group.MemberState),
            TRANSACTIONS,
            drawn(transaction.VALID_TRANSITIONS, transaction.TransactionState.EMPTY),
            PEERS,
            drawn(peer.TRANSITIONS, peer.PeerState.IDLE),
        ]
    )
    if os.environ.get("OTTLA_WRITE_STATES"):
        PAGE.write_text(page)
    assert PAGE.read_text() == page


@pytest.mark.parametrize(
    "table",
    [classic_group.VALID_TRANSITIONS, transaction.VALID_TRANSITIONS, peer.TRANSITIONS],
    ids=["classic_group", "transaction", "peer"],
)
def test_tables_are_complete_and_every_state_is_reachable(table: Table) -> None:
    first = next(iter(table))
    assert set(table) == set(type(first))
    reached, queue = {first}, [first]
    while queue:
        new = table[queue.pop()] - reached
        reached |= new
        queue += new
    assert {state for state in table if table[state]} <= reached


def drawn(table: Table, first: Enum) -> str:
    lines = ["\n```mermaid", "stateDiagram-v2", f"    [*] --> {first.name}"]
    lines += [f"    {state.name} --> {each.name}" for state in table for each in type(state) if each in table[state]]
    return "\n".join([*lines, "```\n"])


def epoch(state: consumer_group.MemberState) -> str:
    return "that of the target" if state in consumer_group.STATES_AT_TARGET_EPOCH else "the previous one"
