"""Transactions on the wire: every version of every request, fencing, and what bad input is answered with."""

from collections.abc import Callable

import pytest
from tests.conformance.conftest import NewTopic
from tests.conformance.peer import Peer
from tests.conformance.transaction_calls import NO_PRODUCER, Producer, TransactionCalls

pytestmark = pytest.mark.usefixtures("broker_stays_healthy", "coordinator")

UNKNOWN_PARTITION, INVALID_TOPIC, AUTHORIZATION, INVALID_REQUEST, OUT_OF_ORDER = 3, 17, 29, 42, 45
INVALID_EPOCH, INVALID_STATE, INVALID_MAPPING, INVALID_TIMEOUT, CONCURRENT = 47, 48, 49, 50, 51
ID_AUTHORIZATION, NOT_ATTEMPTED, INVALID_RECORD, FENCED, ID_NOT_FOUND, ABORTABLE = 53, 55, 87, 90, 105, 120
CONTROL, TRANSACTIONAL = 0x20, 0x10


@pytest.fixture
def calls(peer: Peer, topic_names: Callable[[], str]) -> Callable[[], TransactionCalls]:
    """`calls()` uses a new transactional id."""
    return lambda: TransactionCalls(peer, topic_names())


@pytest.fixture
def transaction(calls: Callable[[], TransactionCalls]) -> TransactionCalls:
    return calls()


def older(who: Producer) -> Producer:
    return Producer(who.producer_id, who.epoch - 1)


def newer(who: Producer) -> Producer:
    return Producer(who.producer_id, who.epoch + 1)


def stranger(who: Producer) -> Producer:
    return Producer(who.producer_id + 10_000, who.epoch)


# ---- InitProducerId


@pytest.mark.parametrize("version", range(6))
def test_a_producer_starts_and_starts_again(transaction: TransactionCalls, version: int) -> None:
    first, second = transaction.start(version), transaction.start(version)
    assert second == newer(first)
    assert first.epoch == 0


@pytest.mark.parametrize("version", range(6))
@pytest.mark.parametrize("timeout_ms", [0, -1, 900_001, 2**31 - 1])
def test_a_timeout_out_of_bounds_is_refused(transaction: TransactionCalls, version: int, timeout_ms: int) -> None:
    refused = transaction.init(version, timeout_ms)
    assert (refused.error_code, refused.producer_id, refused.producer_epoch) == (INVALID_TIMEOUT, -1, -1)
    assert transaction.describe().error_code == ID_NOT_FOUND


def test_names_of_transactions(peer: Peer, topic_name: str) -> None:
    nameless = TransactionCalls(peer, "")
    assert nameless.init().error_code == INVALID_REQUEST
    assert nameless.end(Producer(1, 0), commit=True).error_code == INVALID_REQUEST
    assert nameless.add(Producer(1, 0), {"t": [0]}) == {"t": {0: UNKNOWN_PARTITION}}
    assert nameless.add_offsets(Producer(1, 0), "g") == INVALID_REQUEST
    assert nameless.describe().error_code == INVALID_REQUEST
    assert TransactionCalls(peer, topic_name + "x" * 30_000).start().epoch == 0


@pytest.mark.parametrize("version", [3, 4, 5])
def test_a_producer_with_a_known_id_gets_the_next_epoch_or_is_fenced(
    transaction: TransactionCalls, version: int
) -> None:
    fenced = FENCED if version >= 4 else INVALID_EPOCH
    assert transaction.init(version, known=Producer(5, -1)).error_code == INVALID_REQUEST
    assert transaction.init(version, known=Producer(-1, 5)).error_code == INVALID_REQUEST
    who = transaction.start(version)
    for _ in range(2):  # the second time its answer was lost
        assert transaction.init(version, known=who).producer_epoch == who.epoch + 1
    for impostor in (Producer(who.producer_id, who.epoch + 5), stranger(who)):
        assert transaction.init(version, known=impostor).error_code == fenced
    assert transaction.init(version).producer_epoch == who.epoch + 2
    assert transaction.init(version, known=who).error_code == fenced


# ---- AddPartitionsToTxn


@pytest.mark.parametrize("version", range(6))
def test_partitions_are_added_all_or_none(
    transaction: TransactionCalls, calls: Callable[[], TransactionCalls], new_topic: NewTopic, version: int
) -> None:
    topic = new_topic(partitions=3)
    who = transaction.start()
    fenced = FENCED if version >= 2 else INVALID_EPOCH
    refused = transaction.add(who, {"conformance-nowhere": [0], topic: [2, 9]}, version)
    assert refused == {
        "conformance-nowhere": {0: UNKNOWN_PARTITION},
        topic: {2: NOT_ATTEMPTED, 9: UNKNOWN_PARTITION},
    }
    assert transaction.describe().transaction_state == "Empty"
    assert transaction.add(who, {topic: [0, 1]}, version) == {topic: {0: 0, 1: 0}}
    assert transaction.add(who, {topic: [0]}, version) == {topic: {0: 0}}
    assert transaction.add(older(who), {topic: [2]}, version) == {topic: {2: fenced}}
    assert transaction.add(newer(who), {topic: [2]}, version) == {topic: {2: fenced}}
    assert transaction.add(stranger(who), {topic: [2]}, version) == {topic: {2: INVALID_MAPPING}}
    assert calls().add(who, {topic: [2]}, version) == {topic: {2: INVALID_MAPPING}}
    row = transaction.describe()
    assert (row.transaction_state, row.producer_id, row.producer_epoch) == ("Ongoing", *who)
    assert [(each.topic, sorted(each.partitions)) for each in row.topics] == [(topic, [0, 1])]


@pytest.mark.parametrize("version", [4, 5])
def test_a_partition_is_verified_to_take_part(
    transaction: TransactionCalls, calls: Callable[[], TransactionCalls], new_topic: NewTopic, version: int
) -> None:
    topic = new_topic(partitions=3)
    who = transaction.start()
    transaction.add(who, {topic: [0]})
    assert transaction.add(who, {topic: [0, 2]}, version, verify=True) == {topic: {0: 0, 2: ABORTABLE}}
    assert transaction.add(older(who), {topic: [0]}, version, verify=True) == {topic: {0: FENCED}}
    assert calls().add(who, {topic: [0]}, version, verify=True) == {topic: {0: INVALID_MAPPING}}
    transaction.end(who, commit=False, version=4)
    transaction.wait_for_state("CompleteAbort")
    assert transaction.add(who, {topic: [0]}, version, verify=True) == {topic: {0: ABORTABLE}}


@pytest.mark.parametrize("name", ["__consumer_offsets", "__transaction_state"])
def test_internal_topics_are_not_for_clients(transaction: TransactionCalls, name: str) -> None:
    who = transaction.start()
    assert transaction.add(who, {name: [0]}) == {name: {0: AUTHORIZATION}}
    assert transaction.produce(who, name, 0).error_code == INVALID_TOPIC
    assert transaction.produce(NO_PRODUCER, name, -1, attributes=0, named=None).error_code == INVALID_TOPIC


# ---- EndTxn


@pytest.mark.parametrize("version", range(5))
def test_the_end_in_every_state(
    transaction: TransactionCalls, calls: Callable[[], TransactionCalls], topic: str, version: int
) -> None:
    fenced = FENCED if version >= 2 else INVALID_EPOCH

    def end(who: Producer, *, commit: bool) -> int:
        return int(transaction.end(who, commit=commit, version=version).error_code)

    who = transaction.start()
    assert calls().end(who, commit=True, version=version).error_code == INVALID_MAPPING
    assert end(who, commit=True) == INVALID_STATE
    transaction.add(who, {topic: [0]})
    assert [end(older(who), commit=True), end(newer(who), commit=True)] == [fenced] * 2
    assert end(stranger(who), commit=True) == INVALID_MAPPING
    assert end(who, commit=True) == 0
    transaction.wait_for_state("CompleteCommit")
    assert [end(who, commit=True), end(who, commit=False)] == [0, INVALID_STATE]
    transaction.add(who, {topic: [0]})
    assert end(who, commit=False) == 0
    transaction.wait_for_state("CompleteAbort")
    assert [end(who, commit=False), end(who, commit=True)] == [0, INVALID_STATE]
    row = transaction.describe()
    assert (row.producer_epoch, row.topics) == (who.epoch, [])


@pytest.mark.needs_ottla
@pytest.mark.parametrize("version", range(5))
def test_an_abort_of_nothing_is_no_error(transaction: TransactionCalls, topic: str, version: int) -> None:
    """librdkafka sends it when its first partition was not taken in; Kafka's answer, INVALID_STATE, is fatal there."""
    who = transaction.start()
    for _ in range(2):
        assert transaction.end(who, commit=False, version=version).error_code == 0
    assert transaction.end(older(who), commit=False, version=version).error_code in (FENCED, INVALID_EPOCH)
    assert transaction.describe().transaction_state == "Empty"
    transaction.add(who, {topic: [0]})
    assert transaction.end(who, commit=True, version=version).error_code == 0


def test_with_version_2_every_end_raises_the_epoch(transaction: TransactionCalls, topic: str) -> None:
    who = transaction.start()
    assert transaction.end(who, commit=True).error_code == INVALID_STATE
    empty = transaction.end(who, commit=False)
    assert (empty.error_code, empty.producer_id, empty.producer_epoch) == (0, who.producer_id, who.epoch + 1)
    transaction.wait_for_state("CompleteAbort")
    assert transaction.end(who, commit=False).producer_epoch == who.epoch + 1  # asked again: the answer was lost
    who = newer(who)
    assert transaction.produce(who, topic, 0).error_code == 0
    assert transaction.end(older(who), commit=True).error_code == FENCED
    assert transaction.end(newer(who), commit=True).error_code == FENCED
    assert transaction.end(who, commit=True).producer_epoch == who.epoch + 1
    transaction.wait_for_state("CompleteCommit")
    assert transaction.end(who, commit=True).producer_epoch == who.epoch + 1
    assert transaction.end(who, commit=False).error_code == INVALID_STATE
    assert transaction.produce(who, topic, 1).error_code == INVALID_EPOCH
    assert transaction.produce(newer(who), topic, 0).error_code == 0


# ---- Produce


@pytest.mark.parametrize("version", range(3, 12))
def test_a_partition_must_have_been_added_before(transaction: TransactionCalls, topic: str, version: int) -> None:
    who = transaction.start()
    missing = ABORTABLE if version >= 11 else INVALID_STATE
    refused = transaction.produce(who, topic, 0, version=version)
    assert refused.error_code == missing
    if 8 <= version <= 10:
        assert refused.error_message == "Partition was not added to the transaction"
    transaction.add(who, {topic: [0]})
    first = transaction.produce(who, topic, 0, version=version)
    assert first.error_code == 0
    assert transaction.produce(who, topic, 0, version=version).base_offset == first.base_offset
    assert transaction.produce(who, topic, 7, version=version).error_code == OUT_OF_ORDER
    transaction.end(who, commit=False, version=4)
    transaction.wait_for_state("CompleteAbort")
    assert transaction.produce(who, topic, 1, version=version).error_code == missing


@pytest.mark.parametrize("version", [3, 8, 11, 12])
def test_batches_that_do_not_fit_to_their_request(
    transaction: TransactionCalls, calls: Callable[[], TransactionCalls], new_topic: NewTopic, version: int
) -> None:
    topic = new_topic(partitions=3)
    foreign = calls().transactional_id
    who = transaction.start()
    transaction.add(who, {topic: [0]})

    def produce(who: Producer, sequence: int, **options: object) -> int:
        return int(transaction.produce(who, topic, sequence, version=version, **options).error_code)

    assert produce(who, 0) == 0
    assert produce(who, 1, named=None) == ID_AUTHORIZATION
    assert produce(who, 0, named=foreign, partition=1) == INVALID_MAPPING
    assert produce(older(who), 0) == INVALID_EPOCH
    assert produce(newer(who), 0) == INVALID_EPOCH
    assert produce(newer(who), 0, partition=1) == INVALID_EPOCH
    assert produce(who, 1, attributes=TRANSACTIONAL | CONTROL) == INVALID_RECORD
    assert produce(NO_PRODUCER, -1, attributes=CONTROL, named=None) == INVALID_RECORD
    assert produce(NO_PRODUCER, -1, attributes=0) == 0
    assert transaction.produce(who, "conformance-nowhere", 0, version=version).error_code == UNKNOWN_PARTITION


def test_with_version_2_a_batch_adds_its_partition(transaction: TransactionCalls, topic: str) -> None:
    who = transaction.start()
    assert transaction.produce(who, topic, 0).error_code == 0
    assert [each.topic for each in transaction.describe().topics] == [topic]


# ---- fencing


def test_a_zombie_is_fenced_everywhere(bootstrap: str, transaction: TransactionCalls, topic: str) -> None:
    zombie = transaction.start()
    transaction.add(zombie, {topic: [0]})
    transaction.produce(zombie, topic, 0, version=11)
    with Peer(bootstrap) as second:
        successor = TransactionCalls(second, transaction.transactional_id)
        assert successor.init().error_code == CONCURRENT  # until the zombie's transaction is aborted
        assert successor.start() == Producer(zombie.producer_id, zombie.epoch + 2)
    for version in (3, 11, 12):
        assert transaction.produce(zombie, topic, 1, version=version).error_code == INVALID_EPOCH
    for version in range(6):
        assert transaction.end(zombie, commit=True, version=version).error_code == (FENCED if version >= 2 else 47)
        assert transaction.add(zombie, {topic: [0]}, version) == {topic: {0: FENCED if version >= 2 else 47}}
        offsets = transaction.commit_offsets(zombie, transaction.transactional_id, {topic: {0: 1}}, version)
        assert offsets == {topic: {0: INVALID_EPOCH}}
    for version in range(5):
        assert transaction.add_offsets(zombie, "g", version) == (FENCED if version >= 2 else INVALID_EPOCH)
    for version in (3, 4, 5):
        assert transaction.init(version, known=zombie).error_code == (FENCED if version >= 4 else INVALID_EPOCH)
    assert transaction.describe().transaction_state == "Empty"


# ---- looking at transactions


def test_an_unknown_transaction_is_reported_as_not_found(transaction: TransactionCalls) -> None:
    row = transaction.describe()
    assert (row.error_code, row.transaction_state, row.producer_id, row.topics) == (ID_NOT_FOUND, "", 0, [])


def test_transactions_are_listed_by_state_producer_age_and_pattern(
    transaction: TransactionCalls, calls: Callable[[], TransactionCalls], topic: str
) -> None:
    who = transaction.start()
    transaction.add(who, {topic: [0]})
    for version in range(3):
        error, unknown, row = transaction.listed(version)
        assert (error, unknown, row.producer_id, row.transaction_state) == (0, [], who.producer_id, "Ongoing")
    prefix = transaction.transactional_id[:11]
    for shown in (
        {"states": ["Ongoing"]},
        {"states": ["Empty", "Ongoing"]},
        {"producer_ids": [who.producer_id]},
        {"duration_ms": 0},
        {"pattern": f"{prefix}.*"},
        {"pattern": ""},
    ):
        assert transaction.listed(**shown)[2] is not None, shown
    for hidden in (
        {"states": ["Empty"]},
        {"states": ["ongoing"]},
        {"producer_ids": [who.producer_id + 10_000]},
        {"duration_ms": 10**9},
        {"pattern": prefix},
    ):
        assert transaction.listed(**hidden)[2] is None, hidden
    assert transaction.listed(states=["Nonsense"])[:2] == (0, ["Nonsense"])
    error, unknown, row = transaction.listed(states=["Nonsense", "Ongoing"])
    assert (error, unknown, row is not None) == (0, ["Nonsense"], True)
    assert transaction.listed(pattern="(")[0] == 128
    idle = calls()
    idle.start()
    assert idle.listed(duration_ms=0)[2] is not None
