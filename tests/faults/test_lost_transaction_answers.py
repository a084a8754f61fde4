"""I1 with transactions: answers to any step get lost, the producer asks again, and each transaction counts once."""

import time
from collections.abc import Callable
from typing import Any

import pytest
from tests.conformance.group_calls import find_coordinator
from tests.conformance.peer import Peer
from tests.faults.broker_deaths import FEW_INTERNAL_PARTITIONS
from tests.faults.proxy import LossyProxy
from tests.faults.test_transaction_steps import CLIENTS, group_offset, read_output
from tests.faults.transaction_clients import GROUP, OUTPUT, PARTITIONS, SOURCE, TransactionClient, values_of

# Produce, InitProducerId, AddPartitionsToTxn, AddOffsetsToTxn, EndTxn, TxnOffsetCommit
STEPS = frozenset({0, 22, 24, 25, 26, 28})
ABORTED_EACH = 5
BrokerFactory = Callable[..., Any]


def lose_answers(broker_factory: BrokerFactory, client_name: str, losses: int, seed: int) -> None:
    with LossyProxy(seed, losses_max=losses, loss_rate=0.2, api_keys=STEPS) as proxy:
        address = f"127.0.0.1:{proxy.port}"
        broker = broker_factory(advertised_listeners=f"PLAINTEXT://{address}", **FEW_INTERNAL_PARTITIONS)
        proxy.target = ("127.0.0.1", broker.port)
        with Peer(broker.bootstrap) as peer:
            peer.create_topic(OUTPUT, PARTITIONS)
            peer.create_topic(SOURCE)
            for key, key_type in ((GROUP, 0), ("mover", 1)):
                find_coordinator(peer, key, key_type)
        loss_rate, proxy.loss_rate = proxy.loss_rate, 0.0
        client: TransactionClient = CLIENTS[client_name](address, "mover")
        proxy.loss_rate = loss_rate
        committed: list[int] = []
        number = 0
        deadline = time.monotonic() + losses + 30
        while proxy.losses < losses:
            assert time.monotonic() < deadline, proxy
            if client.run(number, is_commit=number % ABORTED_EACH != 0):
                committed.append(number)
            number += 1
        client.close()
        print(f"{client_name}: {number} transactions, {len(committed)} committed, lost answers {dict(proxy.lost)}")
        stored = read_output(address)
        for partition in range(PARTITIONS):
            assert stored[partition] == [value for each in committed for value in values_of(each, partition)]
        assert group_offset(address) == committed[-1]
        broker.assert_no_traceback()


@pytest.mark.parametrize("client_name", CLIENTS)
def test_lost_answers_change_no_transaction(broker_factory: BrokerFactory, client_name: str) -> None:
    lose_answers(broker_factory, client_name, 15, 1)


@pytest.mark.faults
@pytest.mark.parametrize("client_name", CLIENTS)
def test_many_lost_answers_change_no_transaction(broker_factory: BrokerFactory, client_name: str) -> None:
    lose_answers(broker_factory, client_name, 500, 2)
