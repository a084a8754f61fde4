"""W2-W4, W6, W9, W10, W12 and W13 of the reliability list in a cluster: the disk of one broker, or of all."""

import random
import time
from collections.abc import Callable
from pathlib import Path

import confluent_kafka
import pytest
from tests.conformance.test_compaction import read_all
from tests.faults.cluster_checker import TOPIC, Checker, Outcome
from tests.faults.cluster_disks import cluster_with_faults, forgetful_cluster, lose_power
from tests.faults.cluster_faults import Scene, kill_leader
from tests.faults.cluster_replicas import read_replica
from tests.faults.cluster_rounds import check_logs, rounds
from tests.faults.damage import flipped_bit
from tests.faults.loads import make_consumer
from tests.faults.test_compaction_kills import KeyedLoad

from ottla.base.names import TopicPartition
from ottla.client.reassignments import Election, alter_reassignments, elect_leaders, list_reassignments
from ottla.testing.cluster import Cluster, ClusterBroker

pytestmark = pytest.mark.faults
LAG_SECONDS = 5.0
SYNCED = {"flush.messages": "1"}
ClusterFactory = Callable[..., Cluster]


def finish(checker: Checker, cluster: Cluster) -> Outcome:
    outcome = checker.finish(cluster)
    print(outcome)
    assert not outcome.violations, outcome
    assert not outcome.given_up, outcome
    return outcome


def test_a_full_disk_on_one_broker_loses_nothing(cluster_factory: ClusterFactory, tmp_path: Path) -> None:
    """W2: it does not crash, the others go on, and it is back when there is space."""
    cluster, faults = cluster_with_faults(cluster_factory, tmp_path)
    chance = random.Random(2)
    with Checker(cluster.bootstrap, tmp_path / "logs") as checker:
        for _ in range(rounds(10)):
            broker = chance.choice(cluster.brokers)
            with faults[broker.id].during("write_at", "ENOSPC", f"/{TOPIC}-"):
                time.sleep(chance.uniform(1.0, 2 * LAG_SECONDS))
                assert broker.is_running, "a full disk has ended the broker"
            mend(cluster, broker)
            checker.wait_for_acknowledgements(1)
        finish(checker, cluster)


def test_a_leader_with_a_full_disk_hands_over_its_leadership(cluster_factory: ClusterFactory, tmp_path: Path) -> None:
    """W2: a full disk beside two replicas with space delays no client, and its broker recovers by itself."""
    cluster, faults = cluster_with_faults(cluster_factory, tmp_path)
    chance = random.Random(2)
    with Checker(cluster.bootstrap, tmp_path / "logs") as checker:
        for _ in range(rounds(5)):
            broker = cluster.leader_of(TOPIC, chance.randrange(4))
            with faults[broker.id].during("write_at", "ENOSPC"):
                for partition in range(4):
                    cluster.wait_for_leader(TOPIC, partition, other_than=broker)
                checker.wait_for_acknowledgements(1)
            cluster.wait_until_whole(seconds_max=15)
        outcome = finish(checker, cluster)
    assert outcome.longest_gap_seconds <= LAG_SECONDS + 2, outcome


@pytest.mark.parametrize("operation", ["write_at", "sync"])
def test_a_failing_disk_on_one_broker_loses_nothing(
    cluster_factory: ClusterFactory, tmp_path: Path, operation: str
) -> None:
    """W3: its folder is out of service, others lead, nothing is acknowledged that was not synced."""
    cluster, faults = cluster_with_faults(cluster_factory, tmp_path)
    chance = random.Random(3)
    with Checker(cluster.bootstrap, tmp_path / "logs", topic_settings=SYNCED) as checker:
        for _ in range(rounds(20)):
            broker = cluster.leader_of(TOPIC, chance.randrange(4))
            with faults[broker.id].during(operation, "EIO", f"/{TOPIC}-"):
                for partition in range(4):
                    cluster.wait_for_leader(TOPIC, partition, other_than=broker)
                checker.wait_for_acknowledgements(1)
            if broker.is_running:
                broker.kill()
            broker.start()
            cluster.wait_until_whole()
        finish(checker, cluster)


def test_a_slow_disk_on_one_broker_does_not_hold_up_the_others(cluster_factory: ClusterFactory, tmp_path: Path) -> None:
    """W4: every sync of one broker takes half a second."""
    cluster, faults = cluster_with_faults(cluster_factory, tmp_path)
    chance = random.Random(4)
    with Checker(cluster.bootstrap, tmp_path / "logs", topic_settings=SYNCED) as checker:
        for _ in range(rounds(10)):
            broker = chance.choice(cluster.brokers)
            with faults[broker.id].during("sync", "SLOW", f"/{TOPIC}-"):
                time.sleep(LAG_SECONDS + 2)
            cluster.wait_until_whole()
        outcome = finish(checker, cluster)
    assert outcome.longest_gap_seconds <= LAG_SECONDS + 3, outcome


def test_a_broker_with_a_slow_disk_says_so_and_gives_its_leaderships_away(
    cluster_factory: ClusterFactory, tmp_path: Path
) -> None:
    """W4: it keeps up with the others, so that only itself knows; and it leads again when its disk is well."""
    settings = {"ottla.heal.slow.after.ms": 2_000, "ottla.heal.slow.sync.ms": 400}
    settings["leader.imbalance.check.interval.seconds"] = 1
    cluster, faults = cluster_with_faults(cluster_factory, tmp_path, settings=settings)
    with Checker(cluster.bootstrap, tmp_path / "logs") as checker:
        broker = cluster.leader_of(TOPIC)
        with faults[broker.id].during("sync", "SLOW"):
            for partition in range(4):
                cluster.wait_for_leader(TOPIC, partition, other_than=broker)
            told = cluster.controller().output.read_text()
            assert f"broker {broker.id} is slow: its disk takes" in told
            checker.wait_for_acknowledgements(1)
        cluster.wait_for(lambda: cluster.leader_of(TOPIC) is broker or None, "its leaderships", 60)
        finish(checker, cluster)


def test_replicas_of_a_failed_folder_are_copied_into_another_folder_of_the_broker(
    cluster_factory: ClusterFactory, tmp_path: Path
) -> None:
    """W3 with two folders: there is no fourth broker, and when the folder is back its old copies do no harm."""
    each = {number: {"log.dirs": f"{tmp_path}/{number}/first,{tmp_path}/{number}/second"} for number in (1, 2, 3)}
    settings = {"ottla.heal.after.ms": 2_500, "ottla.heal.disk.max.percentage": 99}
    cluster, faults = cluster_with_faults(cluster_factory, tmp_path, each=each, settings=settings)
    chance = random.Random(33)
    with Checker(cluster.bootstrap, tmp_path / "logs", topic_settings=SYNCED) as checker:
        for _ in range(rounds(5)):
            broker = chance.choice(cluster.brokers)
            copy = broker.partition_folder(TOPIC, 0)
            assert copy is not None
            failed, other = copy.parent, next(folder for folder in broker.log_folders if folder != copy.parent)
            held = [path.name for path in failed.glob(f"{TOPIC}-?")]
            with faults[broker.id].during("write_at", "EIO", f"{failed}/"):
                cluster.wait_for(
                    lambda other=other, held=held: all((other / name).is_dir() for name in held),
                    f"{held} in {other}",
                )
                cluster.wait_until_whole()
                checker.wait_for_acknowledgements(1)
            broker.kill()
            broker.start()
            cluster.wait_until_whole()
            for name in held:
                copies = [folder / name for folder in broker.log_folders if (folder / name).is_dir()]
                assert len(copies) == 1, f"the folder is back, and there are {copies}"
        finish(checker, cluster)


def mend(cluster: Cluster, broker: ClusterBroker) -> None:
    """By itself if it can, else by a restart."""
    try:
        cluster.wait_until_whole(seconds_max=15)
    except Exception:  # noqa: BLE001 (whatever it was, a restart must help)
        if broker.is_running:
            broker.kill()
        broker.start()
        cluster.wait_until_whole()


def test_flipped_bits_are_never_delivered(cluster_factory: ClusterFactory, tmp_path: Path) -> None:
    """W6: one of three replicas is damaged while its broker is down; then it leads, and everything is read."""
    cluster = cluster_factory()
    chance = random.Random(6)
    with Checker(cluster.bootstrap, tmp_path / "logs", topic_settings={"internal.segment.bytes": "50000"}) as checker:
        for number in range(rounds(30)):
            checker.wait_for_acknowledgements(3)
            broker = chance.choice(cluster.brokers)
            if number % 2:
                broker.stop()
            else:
                broker.kill()
            for partition in range(4):
                damage(broker, partition, chance)
            broker.start()
            cluster.wait_until_whole()
            lead(cluster, broker)
            read_what_is_left(cluster.bootstrap, checker.places)
            cluster.wait_until_whole()
        finish(checker, cluster)


def segments_of(broker: ClusterBroker) -> list[list[Path]]:
    """By partition."""
    folders = [broker.partition_folder(TOPIC, partition) for partition in range(4)]
    return [sorted(folder.glob("*.log")) if folder is not None else [] for folder in folders]


def lose_first(segments: list[Path]) -> None:
    for path in segments[0].parent.glob(f"{segments[0].stem}.*"):
        path.unlink()


def lose_middle(segments: list[Path]) -> None:
    segments[len(segments) // 2].unlink()


def empty_middle(segments: list[Path]) -> None:
    segments[len(segments) // 2].write_bytes(b"")


def lose_indexes(segments: list[Path]) -> None:
    for path in segments[0].parent.glob("*index"):
        path.unlink()


def change_epoch(segments: list[Path]) -> None:
    """The checksum does not cover it."""
    data = bytearray(segments[0].read_bytes())
    data[13] ^= 1
    segments[0].write_bytes(data)


@pytest.mark.parametrize("damaging", [lose_first, lose_middle, empty_middle, lose_indexes, change_epoch])
def test_files_that_are_gone_on_one_broker_are_given_back_by_the_others(
    cluster_factory: ClusterFactory, tmp_path: Path, damaging: Callable[[list[Path]], None]
) -> None:
    """W7: then it leads, everything is read from it, and a new disk of another broker is filled by it."""
    cluster = cluster_factory()
    chance = random.Random(7)
    with Checker(cluster.bootstrap, tmp_path / "logs", topic_settings={"internal.segment.bytes": "50000"}) as checker:
        for number in range(rounds(10)):
            broker, other = chance.sample(cluster.brokers, 2)
            cluster.wait_for(lambda broker=broker: min(map(len, segments_of(broker))) > 3, "some segments")
            if number % 2:
                broker.stop()
            else:
                broker.kill()
            for segments in segments_of(broker):
                damaging(segments)
            broker.start()
            cluster.wait_until_whole()
            lead(cluster, broker)
            read_what_is_left(cluster.bootstrap, checker.places)
            cluster.wait_until_whole()
            other.kill()
            other.wipe()
            other.start()
            cluster.wait_until_whole()
        finish(checker, cluster)


def lead(cluster: Cluster, broker: ClusterBroker) -> None:
    """This broker leads every partition, unless it knows by itself that it should not."""
    ids = [broker.id, *(other.id for other in cluster.brokers if other is not broker)]
    places = [TopicPartition(TOPIC, partition) for partition in range(4)]
    with cluster.admin() as admin:
        assert not alter_reassignments(admin.client, dict.fromkeys(places, ids))
        cluster.wait_for(lambda: not list_reassignments(admin.client), "an end of all moves")
        elect_leaders(admin.client, Election.PREFERRED, places)


def damage(broker: ClusterBroker, partition: int, chance: random.Random) -> None:
    folder = broker.partition_folder(TOPIC, partition)
    assert folder is not None
    segments = [path for path in sorted(folder.glob("*.log")) if path.stat().st_size]
    if segments:
        path = chance.choice(segments)
        data = bytearray(path.read_bytes())
        flipped_bit(data, chance)
        path.write_bytes(data)


def test_a_power_cut_on_one_broker_loses_nothing(cluster_factory: ClusterFactory, tmp_path: Path) -> None:
    """W9: everything that was not synced is gone on one of three."""
    cluster, synced = forgetful_cluster(cluster_factory, tmp_path)
    chance = random.Random(9)
    lost = 0
    with Checker(cluster.bootstrap, tmp_path / "logs") as checker:
        for _ in range(rounds(50)):
            time.sleep(chance.uniform(0.2, 2.0))
            broker = chance.choice(cluster.brokers)
            lost += lose_power(broker, synced)
            broker.start()
            cluster.wait_until_whole()
        finish(checker, cluster)
    print(f"{lost} bytes were lost with the power")
    assert lost > 0


def test_a_power_cut_on_all_brokers_loses_nothing_if_every_record_is_synced(
    cluster_factory: ClusterFactory, tmp_path: Path
) -> None:
    """W10: flush.messages=1 is the promise; without it Kafka makes none."""
    cluster, synced = forgetful_cluster(cluster_factory, tmp_path)
    chance = random.Random(10)
    with Checker(cluster.bootstrap, tmp_path / "logs", topic_settings=SYNCED) as checker:
        for _ in range(rounds(30)):
            time.sleep(chance.uniform(0.5, 2.0))
            for broker in cluster.brokers:
                lose_power(broker, synced)
            cluster.start_brokers()
            cluster.wait_until_whole()
            checker.wait_for_acknowledgements(1)
        finish(checker, cluster)


def test_compaction_keeps_the_last_word_while_leaders_die(cluster_factory: ClusterFactory) -> None:
    """W12: of every key the last acknowledged value, on every replica."""
    settings = {"log.cleaner.backoff.ms": 50, "log.initial.task.delay.ms": 50}
    cluster = cluster_factory(settings=settings)
    compacted = {
        "cleanup.policy": "compact",
        "internal.segment.bytes": 20_000,
        "min.cleanable.dirty.ratio": "0.01",
        "file.delete.delay.ms": 100,
    }
    cluster.create_topic("compacted", settings=compacted)
    load = KeyedLoad(cluster.bootstrap, 12)
    load.start()
    chance = random.Random(12)
    for _ in range(rounds(50)):
        time.sleep(chance.uniform(0.3, 1.5))
        leader = cluster.leader_of("compacted")
        leader.kill()
        cluster.wait_for_leader("compacted", other_than=leader)
        leader.start()
        cluster.wait_until_whole()
    load._stopping.set()
    load.join(90)
    time.sleep(1.0)
    assert load.count > 100
    for broker in cluster.brokers:
        cluster.wait_until_whole()
        for other in cluster.brokers:  # so that each of them leads once
            if other is not broker and cluster.leader_of("compacted") is other:
                other.restart()
                cluster.wait_until_whole()
        last = {key: value for _, key, value in read_all(cluster.leader_of("compacted").bootstrap_servers, "compacted")}
        wrong = {
            key: (told, last.get(key))
            for key, (_, told) in load.acknowledged.items()
            if last.get(key) != told and not (told is None and key not in last)
        }
        assert not wrong, f"on broker {cluster.leader_of('compacted').id}: {wrong}"
    check_logs(cluster)


def test_data_that_is_deleted_while_it_is_read_is_reported_as_deleted(
    cluster_factory: ClusterFactory, tmp_path: Path
) -> None:
    """W13: readers get OFFSET_OUT_OF_RANGE or records, never others than were acknowledged there."""
    cluster = cluster_factory(settings={"log.retention.check.interval.ms": 200, "log.initial.task.delay.ms": 50})
    limits = {"internal.segment.bytes": "30000", "retention.bytes": "60000", "file.delete.delay.ms": "100"}
    with Checker(cluster.bootstrap, tmp_path / "logs", topic_settings=limits) as checker:
        scene = Scene(cluster, random.Random(13), TOPIC)
        for _ in range(rounds(20)):
            checker.wait_for_acknowledgements(5)
            kill_leader(scene)
            cluster.wait_until_whole()
        for load in checker.loads:
            load.stop()
        told = {
            (place, offset): value
            for sent in checker.history.producers.values()
            for place, values in sent.acknowledged.items()
            for value, offset in values.items()
        }
        read = read_what_is_left(cluster.bootstrap, checker.places)
        wrong = [where for where, value in read.items() if where in told and told[where] != value]
        assert not wrong, wrong[:5]
        for place in checker.places:
            last = max((offset for where, offset in told if where == place), default=-1)
            assert (place, last) in read, f"the newest record of {place} is gone"
        starts = {
            broker.id: read_replica(folder)[0].base_offset
            for broker in cluster.brokers
            if (folder := broker.partition_folder(TOPIC, 0)) is not None
        }
        assert min(starts.values()) > 0, f"nothing was deleted: {starts}"


def read_what_is_left(bootstrap: str, places: list[tuple[str, int]]) -> dict[tuple[tuple[str, int], int], bytes]:
    consumer = make_consumer(bootstrap)
    consumer.assign(
        [
            confluent_kafka.TopicPartition(topic, partition, confluent_kafka.OFFSET_BEGINNING)
            for topic, partition in places
        ]
    )
    found: dict[tuple[tuple[str, int], int], bytes] = {}
    unread = set(places)
    deadline = time.monotonic() + 60
    while unread and time.monotonic() < deadline:
        for message in consumer.consume(1000, 0.1):
            place = (message.topic() or "", message.partition() or 0)
            if message.error() is None:
                found[place, message.offset() or 0] = message.value() or b""
            elif message.error().code() == confluent_kafka.KafkaError._PARTITION_EOF:
                unread.discard(place)
    consumer.close()
    assert not unread, unread
    return found
