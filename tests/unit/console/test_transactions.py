"""Transactions in the API, with a fake cluster."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.unit.console.test_api import ConsoleFixture, run

from ottla.base.errors import Error
from ottla.base.names import TopicPartition
from ottla.client.errors import BrokerError, error_from_code
from ottla.client.transactions import DescribedTransaction, Marker, abort_transaction, fence_producer
from ottla.console.api import transactions
from ottla.console.api.transactions import transaction_rows
from ottla.console.clusters.cluster import Cluster
from ottla.operations.hanging_transactions import OpenTransaction, SearchError, find_hanging
from ottla.protocol.messages.transactions import ListedTransaction, ProducerState

DEFAULT = "/api/clusters/default"
PLACE = TopicPartition("orders", 1)
LOST = OpenTransaction(
    PLACE,
    ProducerState(producer_id=9, producer_epoch=3, last_timestamp=5, coordinator_epoch=-1, current_txn_start_offset=77),
)


def listing(name: str, producer_id: int, state: str) -> ListedTransaction:
    return ListedTransaction(transactional_id=name, producer_id=producer_id, transaction_state=state)


class Answers:
    """Fake answers of the cluster."""

    def __init__(self, place: ConsoleFixture, monkeypatch: pytest.MonkeyPatch) -> None:
        self.changes: list[tuple[object, ...]] = []
        self.searches: list[tuple[object, ...]] = []
        self.problem: Exception | None = None
        self.described: DescribedTransaction | BrokerError = DescribedTransaction(
            1, "open", 5, 0, "Ongoing", 60_000, 123, [PLACE]
        )
        listed = [listing("ended", 4, "CompleteCommit"), listing("open", 5, "Ongoing")]
        monkeypatch.setattr(transactions, "list_transactions", lambda client: {1: listed})
        monkeypatch.setattr(transactions, "describe_transactions", lambda client, ids: {"open": self.described})
        for method in (Cluster.query, Cluster.query_cached, Cluster.change):
            monkeypatch.setattr(place.cluster, method.__name__, self.ask, raising=False)

    async def ask(self, question: Any, *arguments: object, **_refresh: object) -> object:
        if question is transaction_rows:
            return question(None)
        if question is find_hanging:
            self.searches.append(arguments)
            if self.problem is not None:
                raise self.problem
            return [LOST]
        self.changes.append((question, *arguments))
        return None


@pytest.fixture
def place(tmp_path: Path) -> ConsoleFixture:
    return ConsoleFixture(tmp_path)


@pytest.fixture
def answers(place: ConsoleFixture, monkeypatch: pytest.MonkeyPatch) -> Answers:
    return Answers(place, monkeypatch)


def test_open_ones_come_first_with_what_they_hold(place: ConsoleFixture, answers: Answers) -> None:
    async def ask() -> None:
        _, answer, _ = await place.ask("GET", f"{DEFAULT}/transactions")
        first, second = answer["transactions"]
        assert (first["transactional_id"], first["is_open"], first["start_ms"], first["partitions"]) == (
            "open", True, 123, ["orders-1"],
        )  # fmt: skip
        assert (second["state"], second["is_open"], second["start_ms"]) == ("CompleteCommit", False, None)
        assert answer["is_all"]

    run(place, ask)


def test_one_whose_details_are_refused_is_still_listed(place: ConsoleFixture, answers: Answers) -> None:
    async def ask() -> None:
        answers.described = error_from_code(Error.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
        _, answer, _ = await place.ask("GET", f"{DEFAULT}/transactions")
        assert (answer["transactions"][0]["state"], answer["transactions"][0]["partitions"]) == ("Ongoing", [])

    run(place, ask)


def test_only_an_open_one_is_aborted(place: ConsoleFixture, answers: Answers) -> None:
    async def ask() -> None:
        assert (await place.ask("POST", f"{DEFAULT}/transactions/none/aborts"))[0] == 404
        status, answer, _ = await place.ask("POST", f"{DEFAULT}/transactions/ended/aborts")
        assert (status, answer["error"], answers.changes) == (409, "NOT_OPEN", [])
        assert (await place.ask("POST", f"{DEFAULT}/transactions/open/aborts"))[0] == 204
        assert answers.changes == [(fence_producer, "open")]

    run(place, ask)


def test_hanging_ones_are_found_and_only_they_are_ended_in_a_partition(place: ConsoleFixture, answers: Answers) -> None:
    async def ask() -> None:
        now_ms = place.console.clock.now_ms()
        _, answer, _ = await place.ask("POST", f"{DEFAULT}/hanging-transactions", {"minutes": 2})
        assert answer["hanging"] == [
            {"topic": "orders", "partition": 1, "start_offset": 77, "producer_id": 9, "producer_epoch": 3, "last_ms": 5}
        ]
        assert answers.searches.pop() == (None, None, None, now_ms - 120_000)
        address = f"{DEFAULT}/topics/orders/partitions/1/transaction-aborts"
        status, answer, _ = await place.ask("POST", address, {"start_offset": 76})
        assert (status, answer["error"], answers.changes) == (409, "NOT_HANGING", [])
        assert (await place.ask("POST", address, {"start_offset": 77}))[0] == 204
        assert answers.changes == [(abort_transaction, Marker(PLACE, 9, 3, 0))]
        assert answers.searches.pop() == ("orders", 1, None, now_ms)
        for wrong in ("2", "x", "-1"):
            path = f"{DEFAULT}/topics/orders/partitions/{wrong}/transaction-aborts"
            assert (await place.ask("POST", path, {"start_offset": 77}))[0] == 404

    run(place, ask)


def test_a_search_that_fails_says_at_which_step(place: ConsoleFixture, answers: Answers) -> None:
    async def ask() -> None:
        assert (await place.ask("POST", f"{DEFAULT}/hanging-transactions", {"minutes": -1}))[0] == 400
        problem = error_from_code(Error.TOPIC_AUTHORIZATION_FAILED)
        answers.problem = SearchError("Failed to describe producers", problem)
        status, answer, _ = await place.ask("POST", f"{DEFAULT}/hanging-transactions", {})
        assert status == 403
        assert answer["message"].startswith("Failed to describe producers: ")

    run(place, ask)
