"""What a topic has done, and the sum of all."""

from ottla.base.errors import Error
from ottla.metrics.traffic import TopicTraffic, TrafficSet


def test_all_partitions_of_a_topic_share_their_numbers() -> None:
    traffic = TrafficSet()
    first, second = traffic.join("orders"), traffic.join("orders")
    assert first is second
    assert first.partitions == 2


def test_what_a_deleted_topic_did_stays_in_the_sum() -> None:
    traffic = TrafficSet()
    traffic.join("orders").messages_in += 7
    traffic.join("orders")
    traffic.leave("orders")
    assert "orders" in traffic.topics
    traffic.leave("orders")
    assert "orders" not in traffic.topics
    assert traffic.total().messages_in == 7
    traffic.leave("orders")


def test_a_batch_that_is_too_large_is_rejected_but_no_failed_request() -> None:
    traffic = TopicTraffic()
    traffic.refuse_append(Error.MESSAGE_TOO_LARGE, 5000)
    assert (traffic.refused_appends, traffic.rejected_bytes, traffic.failed_appends) == (1, 5000, 0)


def test_an_invalid_record_is_a_failed_request() -> None:
    traffic = TopicTraffic()
    traffic.refuse_append(Error.INVALID_RECORD, 100)
    traffic.refuse_append(Error.CORRUPT_MESSAGE, 100)
    traffic.refuse_append(Error.OUT_OF_ORDER_SEQUENCE_NUMBER, 100)
    assert (traffic.refused_appends, traffic.failed_appends) == (3, 2)
    assert (traffic.corrupt_batches, traffic.misplaced_batches) == (1, 1)


def test_only_unexpected_read_failures_count_as_failed() -> None:
    traffic = TopicTraffic()
    traffic.refuse_read(Error.OFFSET_OUT_OF_RANGE)
    traffic.refuse_read(Error.CORRUPT_MESSAGE)
    assert (traffic.refused_reads, traffic.failed_reads) == (2, 1)
    assert not traffic.is_idle
