"""The states of a transaction."""

from __future__ import annotations

import pytest

from ottla.base.errors import Error
from ottla.transactions.machine import TransactionMachine, TransactionSettings
from ottla.transactions.transaction import LEADS_TO, Identity, State, Transaction


@pytest.mark.parametrize("state", State)
@pytest.mark.parametrize("following", State)
def test_states_lead_where_the_table_says(state: State, following: State) -> None:
    transaction = Transaction("t", 1, 60_000)
    transaction.state = state
    if following in LEADS_TO[state]:
        transaction.move_to(following)
        assert transaction.state is following
    else:
        with pytest.raises(AssertionError, match=f"cannot become {following.name}"):
            transaction.move_to(following)


def test_a_change_that_goes_back_to_an_older_epoch_is_not_written() -> None:
    machine = TransactionMachine(TransactionSettings())
    known = machine.transactions["t"] = Transaction("t", 1, 60_000)
    known.producer_epoch = 5
    older = known.copy()
    older.producer_epoch = 4
    with pytest.raises(AssertionError, match="goes back to epoch 4"):
        machine._change(older)


def test_while_a_change_is_on_its_way_there_is_no_other() -> None:
    machine = TransactionMachine(TransactionSettings())
    known = machine.transactions["t"] = Transaction("t", 1, 60_000)
    known.producer_epoch = 0
    known.is_pending = True
    with pytest.raises(AssertionError, match="has a change on its way"):
        machine._change(known.copy())
    decision = machine.add_partitions("t", Identity(1, 0), [("p", 0)], 0, "client", 0)
    assert decision.replies[0].response is Error.CONCURRENT_TRANSACTIONS
