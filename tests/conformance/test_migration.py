"""Taking over a log folder that Apache Kafka 3.9 wrote in ZooKeeper mode (kept in tests/data, see faults/)."""

import fcntl
import shutil
import subprocess
import tarfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.conformance.peer import Peer
from tests.conftest import Broker, ottla_command
from tests.faults.make_stored_folder import TARGET, as_json, read_expected
from tests.faults.mixed_records import TOPICS, producer, read_all

pytestmark = pytest.mark.needs_ottla

SETTINGS = TARGET / "topics.txt"
# The records stay as old as they are, and nothing may be compacted while it is compared.
QUIET = {"log.retention.ms": "-1", "log.cleaner.enable": "false"}
FIRST_EPOCH_MIN = 1000


def migrate(*arguments: object) -> "subprocess.CompletedProcess[str]":
    command = [*ottla_command(), "migrate", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)


def take(folder: Path, *arguments: object) -> "subprocess.CompletedProcess[str]":
    return migrate("from-kafka", folder, *arguments)


def contents(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.fixture
def kafka_folder(tmp_path: Path) -> Path:
    folder = tmp_path / "kafka-logs"
    with tarfile.open(TARGET / "log-folder.tar.gz") as archive:
        archive.extractall(folder, filter="data")
    return folder


@pytest.fixture(scope="module")
def migrated(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    """A broker on all topics of the stored folder."""
    place = tmp_path_factory.mktemp("migrated")
    with tarfile.open(TARGET / "log-folder.tar.gz") as archive:
        archive.extractall(place / "kafka-logs", filter="data")
    broker = Broker(place / "ottla", QUIET)
    done = take(place / "kafka-logs", "--settings", SETTINGS, "--all", "--internal", "--data", broker.data_directory)
    assert done.returncode == 0, done.stderr
    try:
        yield broker.start()
        broker.stop()
    finally:
        broker.discard()


def test_every_record_is_as_kafka_served_it(migrated: Broker) -> None:
    found = {key: as_json(partition) for key, partition in read_all(migrated.bootstrap).items()}

    assert found == read_expected()


def test_topics_keep_their_ids_and_settings(migrated: Broker) -> None:
    command = [*ottla_command(), "topics", "describe", "--bootstrap-server", migrated.bootstrap, *TOPICS]
    described = subprocess.run(command, capture_output=True, text=True, timeout=30, check=True).stdout
    told = [line.split("\t") for line in SETTINGS.read_text().splitlines() if line.startswith("Topic: ")]

    for topic_id in (fields[1].split()[1] for fields in told if fields[0].split()[1] in TOPICS):
        assert topic_id in described
    assert "segment.ms=500" in described


def test_epochs_and_writes_continue(migrated: Broker) -> None:
    writer = producer(migrated.bootstrap, **{"enable.idempotence": True})
    writer.produce("empty", b"after", None, 0)
    assert writer.flush(20) == 0

    with Peer(migrated.bootstrap) as peer:
        header = peer.stored_batches("empty", 0)[0]
        assert header.leader_epoch > FIRST_EPOCH_MIN
        assert header.producer_id >= 100_000  # not one that the old cluster may have given away


def test_a_dry_run_changes_nothing(kafka_folder: Path, tmp_path: Path) -> None:
    before = contents(kafka_folder)

    done = take(kafka_folder, "--settings", SETTINGS, "--all", "--dry-run", "--data", tmp_path / "new")

    assert done.returncode == 0
    assert ("plain\t3\t14.6 KiB\tyes\tretention.ms=-1,segment.bytes=1048576") in done.stdout
    assert "__consumer_offsets\t2\t" in done.stdout
    assert contents(kafka_folder) == before
    assert not (tmp_path / "new").exists()


def test_the_source_stays_as_it_was_and_only_wanted_topics_come(kafka_folder: Path, tmp_path: Path) -> None:
    before = contents(kafka_folder)

    done = take(kafka_folder, "--topics", "codecs,empty", "--topic-config", "codecs:max.message.bytes=5000", "--link",
                "--data", tmp_path / "new")  # fmt: skip

    assert done.returncode == 0, done.stderr
    assert contents(kafka_folder) == before
    folders = sorted(path.name for path in (tmp_path / "new").iterdir() if path.is_dir())
    assert folders == ["codecs-0", "empty-0", "empty-1"]
    assert "the settings of codecs, empty" in done.stderr


def test_in_place_a_broker_starts_on_the_very_folder(kafka_folder: Path, tmp_path: Path) -> None:
    broker = Broker(tmp_path / "ottla", QUIET)
    kafka_folder.rename(broker.data_directory)
    done = take(broker.data_directory, "--settings", SETTINGS, "--all", "--in-place")
    assert done.returncode == 0, done.stderr
    try:
        broker.start()
        with Peer(broker.bootstrap) as peer:
            assert peer.end_offset("transactions", 1) == read_expected()["read_committed", "transactions", 1]["high"]
        broker.stop()
    finally:
        broker.discard()
    assert take(broker.data_directory, "--all", "--in-place").returncode == 1


@pytest.mark.parametrize("what", ["missing", "a file", "no log folder"])
def test_a_folder_without_logs_is_refused(tmp_path: Path, what: str) -> None:
    place = tmp_path / "place"
    if what == "a file":
        place.write_text("x")
    elif what == "no log folder":
        place.mkdir()
        (place / "photos").mkdir()

    done = take(place, "--all", "--data", tmp_path / "new")

    assert done.returncode == 1
    assert done.stderr.startswith("ottla migrate: ")
    assert len(done.stderr.splitlines()) == 1
    assert not (tmp_path / "new").exists()


def test_the_folder_of_a_running_broker_is_refused(kafka_folder: Path, tmp_path: Path) -> None:
    with (kafka_folder / ".lock").open("w") as lock:
        fcntl.lockf(lock, fcntl.LOCK_EX)
        done = take(kafka_folder, "--all", "--data", tmp_path / "new")

    assert done.returncode == 1
    assert "a broker is running on" in done.stderr


def test_a_target_that_is_not_empty_is_refused(kafka_folder: Path, tmp_path: Path) -> None:
    (tmp_path / "new").mkdir()
    (tmp_path / "new" / "mine").write_text("precious")

    done = take(kafka_folder, "--all", "--data", tmp_path / "new")

    assert done.returncode == 1
    assert "is not an empty folder" in done.stderr
    assert (tmp_path / "new" / "mine").read_text() == "precious"


def test_holes_between_partitions_are_refused_or_filled(kafka_folder: Path, tmp_path: Path) -> None:
    shutil.rmtree(kafka_folder / "plain-1")

    refused = take(kafka_folder, "--topics", "plain", "--data", tmp_path / "new")
    filled = take(kafka_folder, "--topics", "plain", "--fill-missing", "--data", tmp_path / "new")

    assert refused.returncode == 1
    assert "topic plain: partition 1 is missing" in refused.stderr
    assert filled.returncode == 0, filled.stderr
    assert (tmp_path / "new" / "plain-1" / "partition.metadata").exists()


def test_a_missing_topic_id_gets_a_new_one_and_contradicting_ones_are_refused(
    kafka_folder: Path, tmp_path: Path
) -> None:
    (kafka_folder / "codecs-0" / "partition.metadata").unlink()
    other = (kafka_folder / "plain-0" / "partition.metadata").read_text()
    (kafka_folder / "empty-1" / "partition.metadata").write_text(other)

    taken = take(kafka_folder, "--topics", "codecs", "--data", tmp_path / "new")
    refused = take(kafka_folder, "--topics", "codecs,empty", "--data", tmp_path / "newer")

    assert taken.returncode == 0, taken.stderr
    assert (tmp_path / "new" / "codecs-0" / "partition.metadata").read_text().startswith("version: 0\ntopic_id: ")
    assert refused.returncode == 1
    assert "different topic ids" in refused.stderr


def test_damage_is_reported_and_copied_with_the_rest(kafka_folder: Path, tmp_path: Path) -> None:
    log = next((kafka_folder / "plain-0").glob("*.log"))
    data = bytearray(log.read_bytes())
    data[-1] ^= 1
    log.write_bytes(data)

    done = take(kafka_folder, "--topics", "plain", "--data", tmp_path / "new")

    assert done.returncode == 0
    assert "warning:" in done.stderr
    assert "the checksum of a batch is wrong" in done.stderr


def test_old_messages_and_damaged_ids_are_refused(kafka_folder: Path, tmp_path: Path) -> None:
    log = next((kafka_folder / "codecs-0").glob("*.log"))
    log.write_bytes(bytes(12) + bytes(4) + b"\1" + bytes(40))
    (kafka_folder / "empty-0" / "partition.metadata").write_text("rubbish")

    done = take(kafka_folder, "--topics", "codecs,empty,nowhere", "--data", tmp_path / "new")

    assert done.returncode == 1
    assert "not a partition.metadata file" in done.stderr
    assert "topic nowhere is not in the folder" in done.stderr
    assert not (tmp_path / "new").exists()


def test_topics_and_a_place_must_be_chosen(kafka_folder: Path) -> None:
    assert take(kafka_folder).returncode == 2
    assert take(kafka_folder, "--all").returncode == 2
    assert take(kafka_folder, "--all", "--data", "x", "--topic-config", "rubbish").returncode == 2


def test_zookeeper_gets_the_same_nodes(migrated: Broker, kafka_folder: Path) -> None:
    running = migrate("to-zookeeper", migrated.data_directory)
    foreign = migrate("to-zookeeper", kafka_folder)

    assert running.returncode == 1
    assert "a broker is running on" in running.stderr
    assert foreign.returncode == 1
    assert "ottla.metadata.db" in foreign.stderr
