"""A metadata store that has lost something is never treated as a new cluster: no log directory becomes a stray."""

import os
import shutil
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.conformance.peer import Peer
from tests.conformance.raw_batches import batch
from tests.conformance.test_log_dirs import alter, describe
from tests.conftest import ottla_command
from tests.faults.test_start_refusals import METADATA, RECORDS, assert_unharmed, refusal, tree

from ottla.controller import tree as nodes
from ottla.controller.stores.sqlite_tree import SqliteTree
from ottla.controller.stores.store import DeleteNode

BrokerFactory = Callable[..., Any]
NUMBER = "ottla.metadata.transaction"
WAL = f"{METADATA}-wal"
FLIPS = 8


@pytest.fixture
def killed(broker_factory: BrokerFactory) -> Any:
    """A broker that was killed with its topics in the write-ahead log of the store."""
    broker = broker_factory(offsets_topic_num_partitions=1)
    with Peer(broker.bootstrap) as peer:
        for name in ("kept", "other"):
            peer.create_topic(name)
        for _ in range(RECORDS):
            assert peer.produce("kept", batch()).error_code == 0
    broker.kill9()
    return broker


def strays(broker: Any) -> list[str]:
    return [path.name for path in broker.data_directory.iterdir() if path.name.endswith("-stray")]


def assert_serves(broker: Any, names: tuple[str, ...] = ("kept", "other")) -> None:
    broker.start()
    with Peer(broker.bootstrap) as peer:
        assert set(names) <= set(peer.topic_names())
        assert peer.end_offset("kept") == RECORDS
    assert strays(broker) == []


def empty(broker: Any) -> None:
    os.truncate(broker.data_directory / METADATA, 0)


def empty_all(broker: Any) -> None:
    empty(broker)
    (broker.data_directory / WAL).unlink(missing_ok=True)


def lose_log(broker: Any) -> None:
    (broker.data_directory / WAL).unlink()


def lose_store(broker: Any) -> None:
    (broker.data_directory / METADATA).unlink()


@pytest.mark.parametrize("lose", [empty, empty_all, lose_log, lose_store])
def test_a_store_that_was_lost_after_a_kill_is_taken_for_no_new_cluster(
    killed: Any, lose: Callable[[Any], None], tmp_path: Path
) -> None:
    whole = shutil.copytree(killed.data_directory, tmp_path / "whole")
    lose(killed)
    before = tree(killed.data_directory)
    line = refusal(killed)
    assert METADATA in line
    assert "backup" in line
    assert_unharmed(killed, before)
    for name in (METADATA, WAL):
        shutil.copy(whole / name, killed.data_directory / name)
    assert_serves(killed)


def test_an_emptied_store_after_an_orderly_stop_is_taken_for_no_new_cluster(killed: Any) -> None:
    assert_serves(killed)
    killed.stop()
    whole = (killed.data_directory / METADATA).read_bytes()
    empty(killed)
    line = refusal(killed)
    assert "is empty" in line
    assert "from-kafka" in line, "what helps without a backup"
    (killed.data_directory / METADATA).write_bytes(whole)
    assert_serves(killed)


def test_a_flipped_bit_in_the_log_of_the_store_loses_no_topic(killed: Any, tmp_path: Path) -> None:
    """Either nothing is lost or the broker does not start: SQLite ignores its WAL from the first damaged frame on."""
    whole = shutil.copytree(killed.data_directory, tmp_path / "whole")
    size = (whole / WAL).stat().st_size
    outcomes = set()
    for place in range(size // 2 // FLIPS, size, size // FLIPS):
        shutil.rmtree(killed.data_directory)
        shutil.copytree(whole, killed.data_directory)
        flipped = bytearray((whole / WAL).read_bytes())
        flipped[place] ^= 1 << place % 8
        (killed.data_directory / WAL).write_bytes(flipped)
        position = len(killed.log_text)
        killed.launch()
        while killed.is_running and "ready on" not in killed.log_text[position:]:
            time.sleep(0.01)
        outcomes.add(killed.is_running)
        if killed.is_running:
            with Peer(killed.bootstrap) as peer:
                assert {"kept", "other"} <= set(peer.topic_names()), place
            killed.kill9()
        assert strays(killed) == [], place
    assert False in outcomes, "some of them must have hit the topics"


def test_an_older_store_is_accepted_once_and_only_when_asked_to(killed: Any, tmp_path: Path) -> None:
    assert_serves(killed)
    killed.stop()
    older = shutil.copy(killed.data_directory / METADATA, tmp_path / "older.db")
    killed.start()
    with Peer(killed.bootstrap) as peer:
        peer.create_topic("newer")
        peer.create_topic("newest")
    killed.stop()
    shutil.copy(older, killed.data_directory / METADATA)
    before = tree(killed.data_directory)
    line = refusal(killed)
    assert "newer" in line
    assert "newest" in line
    option, number = line.split("--override ")[1].split()[0].rstrip(".").split("=")
    assert_unharmed(killed, before)

    killed.settings[option] = f"{number}0"
    assert "is older" in refusal(killed), "it must be the loss at hand"
    killed.settings[option] = number
    position = len(killed.log_text)
    killed.start()
    text = killed.log_text[position:]
    assert text.index("newest") < text.index("It was moved to"), "what becomes stray is listed first"
    assert sorted(name.partition(".")[0] for name in strays(killed)) == ["newer-0", "newest-0"]
    with Peer(killed.bootstrap) as peer:
        assert peer.end_offset("kept") == RECORDS
        peer.create_topic("after")
    killed.restart()
    killed.stop()
    shutil.copy(older, killed.data_directory / METADATA)
    assert "after" in refusal(killed), "what was accepted was another loss"


def test_a_topic_that_was_deleted_right_before_a_crash_becomes_stray(killed: Any) -> None:
    """The store has it, the folder was not renamed any more."""
    store = SqliteTree(str(killed.data_directory / METADATA))
    store.open()
    below = [path for path in store.subtree("/") if path.startswith(nodes.topic_path("other"))]
    store.multi([DeleteNode(path) for path in reversed(below)])
    store.close()
    killed.start()
    assert [name.partition(".")[0] for name in strays(killed)] == ["other-0"]
    with Peer(killed.bootstrap) as peer:
        assert peer.end_offset("kept") == RECORDS


def test_folders_of_an_older_version_keep_their_internal_topics(killed: Any) -> None:
    """They have no number: a store that does not know __consumer_offsets has lost it."""
    killed.start()
    with Peer(killed.bootstrap) as peer:
        peer.create_topic("__consumer_offsets")
    killed.stop()
    store = SqliteTree(str(killed.data_directory / METADATA))
    store.open()
    below = [path for path in store.subtree("/") if path.startswith(nodes.topic_path("__consumer_offsets"))]
    whole = (killed.data_directory / METADATA).read_bytes()
    store.multi([DeleteNode(path) for path in reversed(below)])
    store.close()
    (killed.data_directory / NUMBER).unlink(missing_ok=True)
    line = refusal(killed)
    assert "__consumer_offsets" in line
    (killed.data_directory / METADATA).write_bytes(whole)
    assert_serves(killed)
    assert (killed.data_directory / NUMBER).exists()


def tool(*words: object) -> subprocess.CompletedProcess[str]:
    command = [*ottla_command(), *map(str, words)]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)


@pytest.mark.parametrize("words", [("to-zookeeper",), ("to-cluster", "--zookeeper", "127.0.0.1:1/nowhere")])
@pytest.mark.parametrize("lose", [lose_log, empty_all])
def test_a_store_that_was_lost_is_not_handed_on(
    killed: Any, lose: Callable[[Any], None], words: tuple[str, ...]
) -> None:
    """Another cluster would have no such topics, and would move the folders away as stray."""
    lose(killed)
    before = tree(killed.data_directory)
    done = tool("migrate", words[0], killed.data_directory, *words[1:])
    assert done.returncode == 1
    assert "backup" in done.stderr
    assert "create" not in done.stdout
    assert_unharmed(killed, before)


def test_without_any_copy_a_store_is_made_from_the_log_folders(killed: Any, tmp_path: Path) -> None:
    """What the refusal of an empty store says helps."""
    empty_all(killed)
    line = refusal(killed)
    command = line.split("from the log directories: ottla ")[1].split(". ")[0]
    command = command.replace("FOLDER", str(killed.data_directory))
    for name in (METADATA, WAL, f"{METADATA}-shm"):
        if (killed.data_directory / name).exists():
            (killed.data_directory / name).rename(tmp_path / name)
    done = tool(*command.split())
    assert done.returncode == 0, done.stderr
    assert_serves(killed)


def test_a_partition_that_was_moved_takes_the_number_of_its_directory_along(
    broker_factory: BrokerFactory, tmp_path: Path
) -> None:
    """The directory that it came from may be taken out of log.dirs before the store is lost."""
    broker = broker_factory(start=False)
    first, second = broker.data_directory, tmp_path / "second"
    broker.settings["log.dirs"] = f"{first},{second}"
    broker.start()
    with Peer(broker.bootstrap) as peer:
        peer.create_topic("kept")
        assert (first / "kept-0").is_dir()
        assert not (second / NUMBER).exists()
        assert alter(peer, [(str(second), "kept", 0)]) == {("kept", 0): 0}
        while (first / "kept-0").exists() or not (second / "kept-0").exists():
            describe(peer, None)
    broker.stop()
    assert (second / NUMBER).read_text() == (first / NUMBER).read_text()
