"""Transactions: transactional ids and their state, hanging transactions (KIP-664), and aborting.

Rules:
1. An open transaction is aborted by fencing its producer, which then fails; the page warns of that.
2. Only hanging transactions are aborted by a marker in the partition, without the coordinator. Right before writing the
   marker, it is checked again that the transaction hangs.
"""

from __future__ import annotations

import msgspec

from ottla.base.names import TopicPartition
from ottla.client.client import Client
from ottla.client.transactions import (
    DescribedTransaction,
    Marker,
    abort_transaction,
    describe_transactions,
    fence_producer,
    list_transactions,
)
from ottla.console.api.call import Call
from ottla.console.api.errors import ApiError, bad_request, conflict, from_client_error, not_found
from ottla.operations.hanging_transactions import OpenTransaction, SearchError, find_hanging

IDS_MAX = 10_000
OPEN_MAX = 500  # with details
OPEN = ("Ongoing", "PrepareCommit", "PrepareAbort", "PrepareEpochFence")
MINUTES_MAX = 7 * 24 * 60
HANGING_MINUTES = 15  # the default of kafka-transactions.sh
MINUTE_MS = 60_000


class TransactionRow(msgspec.Struct, frozen=True):
    """A transactional id; only open transactions have details."""

    transactional_id: str
    coordinator: int
    producer_id: int
    state: str
    is_open: bool
    start_ms: int | None = None
    timeout_ms: int | None = None
    partitions: list[str] = []


class TransactionList(msgspec.Struct, frozen=True):
    transactions: list[TransactionRow]
    is_all: bool


class HangingRow(msgspec.Struct, frozen=True):
    topic: str
    partition: int
    start_offset: int
    producer_id: int
    producer_epoch: int
    last_ms: int


class HangingSearch(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Transactions whose last record is older than `minutes`, in one topic or in all."""

    topic: str | None = None
    minutes: int = HANGING_MINUTES


class HangingList(msgspec.Struct, frozen=True):
    hanging: list[HangingRow]


class HangingAbort(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    start_offset: int


async def list_transaction_ids(call: Call) -> TransactionList:
    rows: list[TransactionRow] = await call.cluster.query_cached(transaction_rows)
    seen = [_visible_row(call, row) for row in rows if call.sees(row.transactional_id)]
    return TransactionList(seen[:IDS_MAX], len(seen) <= IDS_MAX)


def _visible_row(call: Call, row: TransactionRow) -> TransactionRow:
    """The row without partitions of hidden topics."""
    shown = [place for place in row.partitions if call.sees(place.rpartition("-")[0])]
    return row if len(shown) == len(row.partitions) else msgspec.structs.replace(row, partitions=shown)


async def abort(call: Call) -> None:
    name = call.parameters["transaction"]
    rows: list[TransactionRow] = await call.cluster.query(transaction_rows)
    found = next((row for row in rows if row.transactional_id == name), None)
    if found is None:
        raise not_found("there is no transactional id {0}", name)
    call.audit(f"transaction {name}", before=found)
    if not found.is_open:
        raise conflict("NOT_OPEN", "{0} has no open transaction: its state is {1}", name, found.state)
    await call.cluster.change(fence_producer, name)


async def search_hanging(call: Call) -> HangingList:
    search: HangingSearch = call.body
    if not 0 <= search.minutes <= MINUTES_MAX:
        raise bad_request("{0} must be a whole number up to {1}", "minutes", MINUTES_MAX)
    before_ms = call.console.clock.now_ms() - search.minutes * MINUTE_MS
    found = await _find_hanging(call, search.topic, None, before_ms)
    return HangingList([_hanging_row(item) for item in found if call.sees(item.partition.topic)])


async def abort_hanging(call: Call) -> None:
    text, body = call.parameters["partition"], call.body
    if not (text.isascii() and text.isdecimal()) or int(text) >= len(call.topic().partitions):
        raise not_found("{0} has no partition {1}", call.parameters["topic"], text)
    place = TopicPartition(call.parameters["topic"], int(text))
    hanging = await _find_hanging(call, place.topic, place.partition, call.console.clock.now_ms())
    found = next((item for item in hanging if item.producer.current_txn_start_offset == body.start_offset), None)
    call.audit(
        f"transaction in {place} at {body.start_offset}", before=_hanging_row(found) if found is not None else None
    )
    if found is None:
        raise conflict("NOT_HANGING", "{1} has no hanging transaction that starts at {0}", body.start_offset, place)
    producer = found.producer
    # -1: the partition has no marker of this producer yet. Coordinator epochs start at 0.
    marker = Marker(place, producer.producer_id, producer.producer_epoch, max(producer.coordinator_epoch, 0))
    await call.cluster.change(abort_transaction, marker)


def transaction_rows(client: Client) -> list[TransactionRow]:
    """All transactional ids, with details of open transactions; blocking."""
    listed = [(broker, item) for broker, items in list_transactions(client).items() for item in items]
    wanted = [item.transactional_id for _, item in listed if item.transaction_state in OPEN][:OPEN_MAX]
    details = describe_transactions(client, wanted) if wanted else {}
    rows = []
    for broker, item in listed:
        state, known = item.transaction_state, details.get(item.transactional_id)
        row = TransactionRow(item.transactional_id, broker, item.producer_id, state, state in OPEN)
        if isinstance(known, DescribedTransaction):
            places = [str(place) for place in known.partitions]
            row = msgspec.structs.replace(
                row, state=known.state, start_ms=known.start_ms, timeout_ms=known.timeout_ms, partitions=places
            )
        rows.append(row)
    return sorted(rows, key=lambda row: (not row.is_open, row.transactional_id))


async def _find_hanging(call: Call, topic: str | None, partition: int | None, before_ms: int) -> list[OpenTransaction]:
    try:
        return await call.cluster.query(find_hanging, topic, partition, None, before_ms)
    except SearchError as problem:
        error = from_client_error(problem.problem)
        raise ApiError(error.status, error.code, f"{problem.step}: {error.message}") from None


def _hanging_row(item: OpenTransaction) -> HangingRow:
    producer = item.producer
    return HangingRow(
        item.partition.topic,
        item.partition.partition,
        producer.current_txn_start_offset,
        producer.producer_id,
        producer.producer_epoch,
        producer.last_timestamp,
    )
