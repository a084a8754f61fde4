"""Error codes are found wherever an answer has them."""

from ottla.metrics.counters import CODES_MAX, BrokerCounters, error_codes
from ottla.protocol.messages.offsets import (
    ListOffsetsPartitionResponse,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)


def answer(codes: list[int]) -> ListOffsetsResponse:
    partitions = [ListOffsetsPartitionResponse(partition_index=0, error_code=code) for code in codes]
    return ListOffsetsResponse(topics=[ListOffsetsTopicResponse(name="orders", partitions=partitions)])


def test_codes_of_partitions_are_found() -> None:
    assert error_codes(answer([0, 3, 3])) == [0, 3, 3]


def test_a_huge_answer_is_not_walked_to_its_end() -> None:
    assert len(error_codes(answer([0] * (CODES_MAX + 5)))) == CODES_MAX


def test_codes_are_counted_by_api() -> None:
    counters = BrokerCounters()
    counters.note_answer(2, answer([0, 3]))
    counters.note_answer(2, answer([0]))
    assert counters.errors == {(2, 0): 2, (2, 3): 1}
