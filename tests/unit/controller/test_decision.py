"""Splitting of large changes into transactions."""

from ottla.controller.decisions.decision import operation_bytes, split_into_transactions
from ottla.controller.stores.store import CreateNode, DeleteNode, StoreOperation


def creations(count: int) -> list[StoreOperation]:
    return [CreateNode(f"/brokers/topics/t/partitions/{number:05}/state", b"x" * 100) for number in range(count)]


def test_a_small_change_is_one_transaction_and_none_is_none() -> None:
    operations = creations(3)
    assert list(split_into_transactions(operations)) == [operations]
    assert list(split_into_transactions([])) == []


def test_pieces_keep_the_order_and_the_limit() -> None:
    operations = creations(100)
    limit = 10 * operation_bytes(operations[0])
    pieces = list(split_into_transactions(operations, limit))
    assert [operation for piece in pieces for operation in piece] == operations
    assert [len(piece) for piece in pieces] == [10] * 10


def test_an_operation_that_is_too_large_alone_is_a_piece_of_its_own() -> None:
    large = CreateNode("/large", b"x" * 5000)
    pieces = list(split_into_transactions([*creations(1), large, *creations(1)], 1000))
    assert [len(piece) for piece in pieces] == [1, 1, 1]


def test_a_deletion_in_several_pieces_is_marked_first() -> None:
    states: list[StoreOperation] = [DeleteNode(f"/brokers/topics/t/partitions/{n}/state") for n in range(50)]
    operations = [*states, DeleteNode("/brokers/topics/t/partitions"), DeleteNode("/brokers/topics/t")]
    flat = [operation for piece in split_into_transactions(operations, 2000) for operation in piece]
    assert flat == [CreateNode("/admin/delete_topics/t"), *operations, DeleteNode("/admin/delete_topics/t")]


def test_a_mark_that_is_there_is_not_made_again() -> None:
    operations: list[StoreOperation] = [
        *(DeleteNode(f"/brokers/topics/t/partitions/{n}/state") for n in range(50)),
        DeleteNode("/brokers/topics/t"),
        DeleteNode("/admin/delete_topics/t"),
    ]
    assert [operation for piece in split_into_transactions(operations, 2000) for operation in piece] == operations
