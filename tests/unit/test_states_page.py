"""The page about states is drawn from the tables that the code asserts.

`OTTLA_WRITE_STATES=1 pytest tests/unit/test_states_page.py` draws it anew.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from enum import Enum
from pathlib import Path

import pytest

from ottla.groups import classic_group, consumer_group
from ottla.network import peer_state
from ottla.transactions import transaction

PAGE = Path(__file__).parents[2] / "docs" / "states.md"
HEAD = """# States

What the pure machines and the outgoing connections go through, drawn from the tables in the code
(tests/unit/test_states_page.py); an arrow that is missing here is refused there, with an assertion.
"""
CLASSIC = """
## Classic groups

`groups/classic_group.py`. In memory only: the log keeps what a generation has agreed on.
"""
MEMBERS = """
## Members of new groups

`groups/consumer_group.py` (KIP-848). Any state may follow any, because a new target may ask anything of anybody. What
differs is the epoch: whoever has to give something up keeps the one that it has until that is done.

| State | Epoch |
|---|---|
"""
TRANSACTIONS = """
## Transactions

`transactions/transaction.py`. Every arrow is a record in `__transaction_state`. Two more states exist in Kafka's memory
only and are never written.
"""
PEERS = """
## Connections to other brokers

`network/peer_state.py`. A lost connection is idle again, and made anew with the next call.
"""
Table = Mapping[Enum, set[Enum]]


def test_the_page_is_drawn_from_the_tables() -> None:
    page = "".join(
        [
            HEAD,
            CLASSIC,
            drawn(classic_group.LEADS_TO, classic_group.State.EMPTY),
            MEMBERS,
            *(f"| {state.name} | {epoch(state)} |\n" for state in consumer_group.MemberState),
            TRANSACTIONS,
            drawn(transaction.LEADS_TO, transaction.State.EMPTY),
            PEERS,
            drawn(peer_state.LEADS_TO, peer_state.PeerState.IDLE),
        ]
    )
    if os.environ.get("OTTLA_WRITE_STATES"):
        PAGE.write_text(page)
    assert PAGE.read_text() == page


@pytest.mark.parametrize("module", [classic_group, transaction, peer_state], ids=lambda module: module.__name__)
def test_tables_are_whole_and_nobody_is_out_of_reach(module: object) -> None:
    table: Table = module.LEADS_TO  # type: ignore[attr-defined]
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
    return "that of the target" if state in consumer_group.HAS_TARGET_EPOCH else "the one that it had"
