"""A broker that cannot start says why in one line, ends with code 1 and leaves everything as it was."""

import hashlib
import os
import socket
import sqlite3
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.conformance.peer import Peer
from tests.conformance.raw_batches import batch

METADATA = "ottla.metadata.db"
VOLATILE = (".lock", f"{METADATA}-wal", f"{METADATA}-shm")  # of no meaning to the next start
RECORDS = 3
BrokerFactory = Callable[..., Any]


@pytest.fixture
def filled(broker_factory: BrokerFactory) -> Any:
    """A stopped broker with a topic and records in its folder."""
    broker = broker_factory()
    with Peer(broker.bootstrap) as peer:
        peer.create_topic("kept", retention_ms=123_456_789)
        for _ in range(RECORDS):
            assert peer.produce("kept", batch()).error_code == 0
    broker.stop()
    return broker


def tree(folder: Path) -> dict[str, str]:
    """Every file under the folder and a digest of its content."""
    return {
        str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(folder.rglob("*"))
        if path.is_file() and path.name not in VOLATILE
    }


def refusal(broker: Any) -> str:
    """What a start that must fail says: one line on the error output, and nothing that looks like a crash."""
    position = len(broker.log_text)
    broker.launch()
    assert broker.wait() == 1
    text = broker.log_text[position:]
    assert "Traceback" not in text, text
    lines = [line for line in text.splitlines() if not line.startswith("[")]  # log lines begin with their time
    assert len(lines) == 1, text
    assert lines[0].startswith("ottla broker: "), text
    return str(lines[0])


def assert_unharmed(broker: Any, before: dict[str, str]) -> None:
    """Nothing was changed, and with the obstacle away the broker starts and has everything."""
    after = tree(broker.data_directory)
    assert after == before, {name for name in before.keys() | after.keys() if before.get(name) != after.get(name)}


def assert_serves_all(broker: Any) -> None:
    broker.start()
    with Peer(broker.bootstrap) as peer:
        assert "kept" in peer.topic_names()
        assert peer.end_offset("kept") == RECORDS
        assert peer.produce("kept", batch()).base_offset == RECORDS
    broker.stop()


def test_a_folder_of_another_broker(filled: Any) -> None:
    before = tree(filled.data_directory)
    filled.settings["broker.id"] = "2"
    line = refusal(filled)
    assert "broker 1" in line
    assert "broker 2" in line
    assert "meta.properties" in line
    assert_unharmed(filled, before)
    filled.settings["broker.id"] = "1"
    assert_serves_all(filled)


@pytest.mark.faults
def test_a_folder_of_another_cluster(filled: Any, broker_factory: BrokerFactory) -> None:
    """The second folder of log.dirs belongs to another cluster."""
    other = broker_factory()
    other.stop()
    before, others = tree(filled.data_directory), tree(other.data_directory)
    filled.settings["log.dirs"] = f"{filled.data_directory},{other.data_directory}"
    line = refusal(filled)
    assert "cluster" in line
    assert_unharmed(filled, before)
    assert tree(other.data_directory) == others
    filled.settings["log.dirs"] = str(filled.data_directory)
    assert_serves_all(filled)


@pytest.mark.faults
def test_metadata_of_another_cluster(filled: Any, broker_factory: BrokerFactory) -> None:
    """The metadata store was taken from another installation."""
    other = broker_factory()
    other.stop()
    kept = (filled.data_directory / METADATA).read_bytes()
    (filled.data_directory / METADATA).write_bytes((other.data_directory / METADATA).read_bytes())
    before = tree(filled.data_directory)
    assert "cluster" in refusal(filled)
    before.pop(METADATA)  # looking into it tidies it up
    assert {name: digest for name, digest in tree(filled.data_directory).items() if name != METADATA} == before
    (filled.data_directory / METADATA).write_bytes(kept)
    assert_serves_all(filled)


@pytest.mark.parametrize(
    "content",
    [
        "version=0\nbroker.id=1\nclust",
        *(
            pytest.param(content, marks=pytest.mark.faults)
            for content in ("", "vers", "\0\0\0\0\0\0", "version=7\nbroker.id=1\n")
        ),
    ],
)
def test_half_written_meta_properties(filled: Any, content: str) -> None:
    path = filled.data_directory / "meta.properties"
    whole = path.read_text()
    path.write_text(content)
    before = tree(filled.data_directory)
    assert "meta.properties" in refusal(filled)
    assert_unharmed(filled, before)
    path.write_text(whole)
    assert_serves_all(filled)


def spoil_header(path: Path) -> None:
    path.write_bytes(b"garbage" * 1000)


def spoil_pages(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[100:] = b"\xff" * (len(data) - 100)
    path.write_bytes(data)


def cut_in_half(path: Path) -> None:
    data = path.read_bytes()
    path.write_bytes(data[: len(data) // 2])


def replace_with_foreign_database(path: Path) -> None:
    path.unlink()
    with sqlite3.connect(path) as database:
        database.execute("CREATE TABLE other_table (thing TEXT)")
    database.close()


@pytest.mark.parametrize(
    "spoil",
    [
        spoil_header,
        *(
            pytest.param(spoil, marks=pytest.mark.faults)
            for spoil in (spoil_pages, cut_in_half, replace_with_foreign_database)
        ),
    ],
)
def test_a_metadata_store_that_is_none(filled: Any, spoil: Callable[[Path], None]) -> None:
    path = filled.data_directory / METADATA
    whole = path.read_bytes()
    spoil(path)
    before = tree(filled.data_directory)
    assert METADATA in refusal(filled)
    assert_unharmed(filled, before)
    path.write_bytes(whole)
    assert_serves_all(filled)


def test_a_metadata_store_that_is_gone(filled: Any) -> None:
    """With topics in the folder and no metadata the broker must not start as if it were new."""
    path = filled.data_directory / METADATA
    whole = path.read_bytes()
    path.unlink()
    before = tree(filled.data_directory)
    assert METADATA in refusal(filled)
    assert_unharmed(filled, before)
    path.write_bytes(whole)
    assert_serves_all(filled)


def test_a_port_in_use(filled: Any) -> None:
    before = tree(filled.data_directory)
    with socket.socket() as other:
        other.bind(("127.0.0.1", filled.port))
        other.listen()
        line = refusal(filled)
    assert f"127.0.0.1:{filled.port}" in line
    assert "listeners" in line
    assert_unharmed(filled, before)
    assert_serves_all(filled)


@pytest.mark.faults
def test_a_folder_in_use(broker_factory: BrokerFactory) -> None:
    running = broker_factory()
    second = broker_factory(start=False)
    second.settings["log.dirs"] = str(running.data_directory)
    line = refusal(second)
    assert "in use" in line
    with Peer(running.bootstrap) as peer:
        peer.create_topic("undisturbed")
        assert peer.produce("undisturbed", batch()).base_offset == 0
    running.restart()


@pytest.mark.faults
@pytest.mark.parametrize("kind", ["file", "below a file", "proc"])
def test_a_folder_that_cannot_be_made(broker_factory: BrokerFactory, tmp_path: Path, kind: str) -> None:
    file = tmp_path / "file"
    file.write_text("not a folder")
    place = {"file": str(file), "below a file": f"{file}/data", "proc": "/proc/ottla-data"}[kind]
    broker = broker_factory(start=False, log_dirs=place)
    line = refusal(broker)
    assert place in line
    assert "log.dirs" in line
    assert file.read_text() == "not a folder"


@pytest.fixture
def read_only(filled: Any) -> Iterator[Any]:
    """The folder can be read but not written: by its file system where we are root, by its mode otherwise."""
    data = filled.data_directory
    if os.geteuid() == 0:
        for command in (["mount", "--bind", data, data], ["mount", "-o", "remount,bind,ro", data]):
            done = subprocess.run(command, capture_output=True, text=True, check=False)
            assert done.returncode == 0, f"this test needs the right to mount: {done.stderr}"
    else:
        data.chmod(0o500)
    yield filled
    if os.geteuid() == 0:
        subprocess.run(["umount", "--lazy", data], check=True)
    else:
        data.chmod(0o700)


@pytest.mark.faults
def test_a_folder_that_cannot_be_written(read_only: Any) -> None:
    before = tree(read_only.data_directory)
    line = refusal(read_only)
    assert str(read_only.data_directory) in line
    assert "writable" in line
    assert_unharmed(read_only, before)


@pytest.mark.faults
def test_settings_that_make_no_sense(filled: Any) -> None:
    before = tree(filled.data_directory)
    filled.settings["log.segment.bytes"] = "a lot"
    position = len(filled.log_text)
    filled.launch()
    assert filled.wait() == 1
    text = filled.log_text[position:].strip()
    assert "\n" not in text, text
    assert "log.segment.bytes" in text
    assert "server.properties" in text
    assert_unharmed(filled, before)


def test_a_port_in_use_leaves_no_new_folder(broker_factory: BrokerFactory) -> None:
    broker = broker_factory(start=False)
    with socket.socket() as other:
        other.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        other.bind(("127.0.0.1", broker.port))
        other.listen()
        assert "listeners" in refusal(broker)
    assert not broker.data_directory.exists()


def test_a_congestion_control_that_the_kernel_lacks_leaves_no_new_folder(broker_factory: BrokerFactory) -> None:
    broker = broker_factory(start=False)
    broker.settings["ottla.socket.congestion.control"] = "cubik"
    assert "ottla.socket.congestion.control=cubik is not available in this kernel: " in refusal(broker)
    assert not broker.data_directory.exists()


def test_a_log_folder_that_is_a_file_is_reported_once(broker_factory: BrokerFactory, tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.touch()
    broker = broker_factory(start=False, log_dirs=file)
    line = refusal(broker)
    assert "it is a file" in line
    assert "writable" not in line
    assert broker.log_text.count(str(file)) == 1
