"""Settings of groups and transactions take effect: brokers of their own, and settings of single groups."""

import time
from collections.abc import Callable
from typing import Any

import pytest
from kafka.protocol.admin import UpdateFeaturesRequest
from kafka.protocol.metadata import ApiVersionsRequest
from tests.conformance.config_requests import GROUP, OK, SET, change
from tests.conformance.group_calls import GroupCalls, find_coordinator, subscription
from tests.conformance.peer import COORDINATOR_LOAD_IN_PROGRESS, Peer
from tests.conformance.transaction_calls import TransactionCalls

BrokerFactory = Callable[..., Any]

GROUP_MAX_SIZE_REACHED, INVALID_SESSION_TIMEOUT, METADATA_TOO_LARGE, UNSUPPORTED_VERSION = 81, 26, 12, 35
INVALID_TIMEOUT, UNKNOWN_MEMBER, ABORTABLE = 50, 25, 120
CODEC_MASK, GZIP = 7, 1
SETTLED_SECONDS_MAX = 10


def make_topics(peer: Peer) -> None:
    for key_type in (0, 1):
        assert find_coordinator(peer, "any-key", key_type).error_code == 0


def test_limits_of_groups(broker_factory: BrokerFactory) -> None:
    broker = broker_factory(
        group_min_session_timeout_ms=1_000,
        group_max_session_timeout_ms=20_000,
        group_initial_rebalance_delay_ms=0,
        group_max_size=1,
        group_consumer_max_size=1,
        group_consumer_heartbeat_interval_ms=6_000,
        group_consumer_assignors="range",
        offset_metadata_max_bytes=10,
        offsets_topic_num_partitions=3,
        offsets_topic_segment_bytes=1 << 20,
        offsets_topic_compression_codec=GZIP,
        transaction_state_log_num_partitions=2,
        transaction_state_log_segment_bytes=1 << 20,
        transaction_max_timeout_ms=5_000,
    )
    with Peer(broker.bootstrap) as peer:
        make_topics(peer)
        peer.create_topic("t")
        names = [path.name for path in broker.data_directory.iterdir()]
        assert sum(name.startswith("__consumer_offsets-") for name in names) == 3
        assert sum(name.startswith("__transaction_state-") for name in names) == 2
        group = GroupCalls(peer, "g")
        assert group.join(session_ms=900).error_code == INVALID_SESSION_TIMEOUT
        assert group.join(session_ms=20_001).error_code == INVALID_SESSION_TIMEOUT
        member, generation = group.stable_member(session_ms=20_000)
        assert GroupCalls(peer, "g").join(session_ms=20_000, version=3).error_code == GROUP_MAX_SIZE_REACHED
        commit = {"member_id": member, "generation": generation}
        assert group.commit({"t": {0: 1}}, metadata="m" * 10, **commit) == {"t": {0: 0}}
        assert group.commit({"t": {0: 2}}, metadata="m" * 11, **commit) == {"t": {0: METADATA_TOO_LARGE}}
        new = GroupCalls(peer, "new")
        joined = new.consumer_join("A", ["t"])
        assert (joined.error, joined.interval_ms) == (0, 6_000)
        assert new.consumer_describe().assignor == "range"
        assert new.consumer_join("B", ["t"]).error == GROUP_MAX_SIZE_REACHED
        assert TransactionCalls(peer, "x").init(timeout_ms=5_001).error_code == INVALID_TIMEOUT
        assert TransactionCalls(peer, "x").init(timeout_ms=5_000).error_code == 0
        stored = [batch for index in range(3) for batch in peer.stored_batches("__consumer_offsets", 0, index)]
        assert {batch.attributes & CODEC_MASK for batch in stored} == {GZIP}
    broker.restart()
    with Peer(broker.bootstrap) as peer:
        assert GroupCalls(peer, "g").committed("t") == 1


def test_sessions_end_and_transactions_run_out_of_time(broker_factory: BrokerFactory) -> None:
    broker = broker_factory(
        group_min_session_timeout_ms=500,
        group_consumer_min_session_timeout_ms=500,
        group_consumer_session_timeout_ms=600,
        group_consumer_min_heartbeat_interval_ms=100,
        group_consumer_heartbeat_interval_ms=200,
        group_consumer_assignment_interval_ms=0,
        group_initial_rebalance_delay_ms=300,
        transaction_abort_timed_out_transaction_cleanup_interval_ms=200,
        transactional_id_expiration_ms=600,
        transaction_remove_expired_transaction_cleanup_interval_ms=200,
    )
    with Peer(broker.bootstrap) as peer:
        make_topics(peer)
        peer.create_topic("t")
        group, new = GroupCalls(peer, "g"), GroupCalls(peer, "new")
        transaction = TransactionCalls(peer, "x")
        started = time.monotonic()
        member, generation = group.stable_member(session_ms=500)
        assert time.monotonic() - started >= 0.3
        new.consumer_join("A", ["t"])
        assert new.consumer_join("B", ["t"]).epoch == 3  # a new assignment at once
        transaction.produce(transaction.start(timeout_ms=300), "t", 0)
        transaction.wait_for_state("CompleteAbort")
        deadline = time.monotonic() + SETTLED_SECONDS_MAX
        while group.heartbeat(member, generation) != UNKNOWN_MEMBER or new.consumer_describe().members:
            assert time.monotonic() < deadline
            time.sleep(0.7)
        transaction.wait_for_state("")  # forgotten


def test_the_new_protocol_can_be_switched_off(broker_factory: BrokerFactory) -> None:
    broker = broker_factory(group_coordinator_rebalance_protocols="classic")
    with Peer(broker.bootstrap) as peer:
        make_topics(peer)
        assert GroupCalls(peer, "g").consumer_join("A", ["t"]).error == UNSUPPORTED_VERSION
        assert GroupCalls(peer, "g").consumer_describe().error == UNSUPPORTED_VERSION


@pytest.mark.parametrize("policy", ["UPGRADE", "downgrade"])
def test_groups_with_members_may_have_to_keep_their_protocol(broker_factory: BrokerFactory, policy: str) -> None:
    broker = broker_factory(group_consumer_migration_policy=policy, group_initial_rebalance_delay_ms=0)
    with Peer(broker.bootstrap) as peer:
        make_topics(peer)
        peer.create_topic("t")
        protocols = {"range": subscription("t")}
        classic, new = GroupCalls(peer, "classic"), GroupCalls(peer, "new")
        joined = classic.enter(protocols=protocols)
        classic.sync(joined.member_id, 1, {joined.member_id: b""})
        upgraded = classic.consumer_join("A", ["t"])
        if policy == "UPGRADE":
            assert upgraded.error == 0
        else:
            reason = "because online upgrade is disabled."
            assert upgraded.message == f"Cannot upgrade classic group classic to consumer group {reason}"
        new.consumer_join("A", ["t"])
        assert new.enter(protocols=protocols).error_code == 0
        new.consumer_heartbeat("A", -1)
        assert new.listed().group_type == ("classic" if policy == "downgrade" else "consumer")


def test_the_new_protocol_goes_with_its_feature(broker_factory: BrokerFactory) -> None:
    broker = broker_factory()
    with Peer(broker.bootstrap) as peer:
        make_topics(peer)
        others = {"transaction.version": 2, "eligible.leader.replicas.version": 1, "ottla.version": 2}
        assert finalized(peer) == {"group.version": 1, **others}
        set_level(peer, "group.version", 0, upgrade_type=2)
        assert finalized(peer) == others
        assert GroupCalls(peer, "g").consumer_join("A", ["t"]).error == UNSUPPORTED_VERSION
    broker.restart()
    with Peer(broker.bootstrap) as peer:
        assert finalized(peer) == others
        set_level(peer, "group.version", 1, upgrade_type=1)
        assert GroupCalls(peer, "g").consumer_join("A", ["t"]).error == 0


def finalized(peer: Peer) -> dict[str, int]:
    request = ApiVersionsRequest(client_software_name="test", client_software_version="1")
    return {row.name: row.max_version_level for row in peer.ask(request, 4).finalized_features}


def set_level(peer: Peer, feature: str, level: int, upgrade_type: int) -> None:
    row = UpdateFeaturesRequest.FeatureUpdateKey(feature=feature, max_version_level=level, upgrade_type=upgrade_type)
    answer = peer.ask(UpdateFeaturesRequest(timeout_ms=5_000, feature_updates=[row], validate_only=False), 2)
    assert (answer.error_code, answer.error_message) == (0, None)


def test_older_producers_may_be_trusted(broker_factory: BrokerFactory) -> None:
    broker = broker_factory(transaction_partition_verification_enable="false")
    with Peer(broker.bootstrap) as peer:
        make_topics(peer)
        peer.create_topic("t")
        transaction = TransactionCalls(peer, "x")
        who = transaction.start()
        assert transaction.produce(who, "t", 0, version=11).error_code == 0
        assert transaction.commit_offsets(who, "g", {"t": {0: 1}}, 4) == {"t": {0: 0}}


@pytest.mark.usefixtures("coordinator")
def test_a_group_has_times_of_its_own(peer: Peer, topic_names: Callable[[], str], topic: str) -> None:
    group = GroupCalls(peer, topic_names())
    wanted = {"consumer.heartbeat.interval.ms": "7000", "consumer.assignment.interval.ms": "0"}
    assert change(peer, (GROUP, group.group, [(key, SET, value) for key, value in wanted.items()])) == [OK]
    time.sleep(0.3)  # Apache Kafka's coordinator hears of it a little later
    assert group.consumer_join("A", [topic]).interval_ms == 7_000
    assert group.consumer_join("B", [topic]).epoch == 3
    other = GroupCalls(peer, topic_names())
    assert other.consumer_join("A", [topic]).interval_ms == 5_000
    assert other.consumer_join("B", [topic]).epoch == 2


def test_the_members_of_all_groups_together_keep_no_more_than_their_limit(broker_factory: BrokerFactory) -> None:
    broker = broker_factory(
        group_initial_rebalance_delay_ms=0, offsets_topic_num_partitions=5, ottla_group_metadata_max_bytes=105_000
    )
    large, larger = ({"range": subscription("t") + b"x" * size} for size in (30_000, 40_000))
    with Peer(broker.bootstrap) as peer:
        make_topics(peer)
        peer.create_topic("t")
        groups = [GroupCalls(peer, f"g{number}") for number in range(3)]
        members = [group.stable_member(protocols=large) for group in groups]
        late = GroupCalls(peer, "late")
        for version in (3, 9):
            assert late.join(version=version, protocols=large).error_code == GROUP_MAX_SIZE_REACHED
        assert late.listed() is None
        refused = GroupCalls(peer, "new").consumer_join("A", [f"{number:03}" + "n" * 200 for number in range(60)])
        assert refused.error == GROUP_MAX_SIZE_REACHED
        assert "ottla.group.metadata.max.bytes=105000" in str(refused.message)
        assert broker.log_text.count("ottla.group.metadata.max.bytes is 105000") == 1
        # Members that are there go on, even with more; what one of them leaves is free.
        assert groups[0].join(members[0][0], protocols=larger).error_code == 0
        assert GroupCalls(peer, "small").stable_member()
        groups[1].leave((members[1][0], None))
        late.stable_member(protocols=large)
    broker.stop()
    broker.start()
    with Peer(broker.bootstrap) as peer:
        make_topics(peer)
        deadline = time.monotonic() + SETTLED_SECONDS_MAX
        for name in ("g0", "g2", "late", "late again"):  # what is not loaded yet is not counted
            while GroupCalls(peer, name).heartbeat("x", 0) == COORDINATOR_LOAD_IN_PROGRESS:
                assert time.monotonic() < deadline
                time.sleep(0.02)
        assert GroupCalls(peer, "late again").join(protocols=large).error_code == GROUP_MAX_SIZE_REACHED
        assert GroupCalls(peer, "small too").stable_member()
