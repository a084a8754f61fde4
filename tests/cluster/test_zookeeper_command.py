"""`ottla zookeeper` with the real thing: alone, in an ensemble, from Kafka's file, and how it ends."""

import asyncio
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from ottla.cli.commands.zookeeper import EFFECTIVE_FILE, send_four_letter_word
from ottla.controller.stores.store import CreateNode, SetNode, StoreError
from ottla.controller.stores.zookeeper.store import ZooKeeperStore
from ottla.testing.zookeeper import ZooKeeperProcess

SECONDS_MAX = 60.0


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def test_a_server_says_little_about_itself(zookeeper: ZooKeeperProcess) -> None:
    assert send_four_letter_word("127.0.0.1", zookeeper.port, b"ruok") == b"imok"
    assert b"Mode: standalone" in send_four_letter_word("127.0.0.1", zookeeper.port, b"srvr")
    assert b"not in the whitelist" in send_four_letter_word("127.0.0.1", zookeeper.port, b"envi")


def test_it_is_bound_to_this_machine_alone_and_java_has_our_process_id(zookeeper: ZooKeeperProcess) -> None:
    words = Path(f"/proc/{zookeeper.pid}/cmdline").read_bytes().split(b"\0")
    assert b"org.apache.zookeeper.server.quorum.QuorumPeerMain" in words
    wanted = f"{zookeeper.port:04X}"
    lines = [line.split() for table in ("tcp", "tcp6") for line in Path(f"/proc/net/{table}").read_text().splitlines()]
    listening = [line[1] for line in lines if line[3] == "0A" and line[1].endswith(f":{wanted}")]
    assert listening in ([f"0100007F:{wanted}"], [f"0000000000000000FFFF00000100007F:{wanted}"])


def run_command(*words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "ottla.cli.main", "zookeeper", *words]
    return subprocess.run(command, check=False, capture_output=True, text=True, timeout=SECONDS_MAX)


def test_a_port_that_is_in_use_is_one_line(zookeeper: ZooKeeperProcess, tmp_path: Path) -> None:
    ended = run_command("--port", str(zookeeper.port), "--data", str(tmp_path / "data"))
    assert ended.returncode == 1
    assert "already in use" in ended.stderr
    assert ended.stderr.count("\n") == 1


def test_a_folder_in_use_is_one_line_and_left_as_it_is(zookeeper: ZooKeeperProcess) -> None:
    folder = zookeeper.folder / "data"
    before = (folder / EFFECTIVE_FILE).read_bytes()
    ended = run_command("--port", str(free_port()), "--data", str(folder))
    assert (ended.returncode, ended.stdout) == (1, "")
    assert f"another ZooKeeper uses {folder}" in ended.stderr
    assert ended.stderr.count("\n") == 1
    assert (folder / EFFECTIVE_FILE).read_bytes() == before


def test_an_unknown_host_is_named_in_the_error() -> None:
    async def body() -> None:
        store = ZooKeeperStore("nowhere.invalid:2181", connection_timeout_ms=500)
        with pytest.raises(StoreError, match=r"the host name is not known: nowhere\.invalid"):
            await store.open()

    asyncio.run(body())


def test_kafkas_script_and_file_start_it_and_sigterm_ends_it(tmp_path: Path) -> None:
    port = free_port()
    file = tmp_path / "zookeeper.properties"
    file.write_text(f"# as Kafka brings it\ndataDir={tmp_path}/zookeeper\nclientPort={port}\nmaxClientCnxns=0\n")
    process = subprocess.Popen(
        [sys.executable, "-m", "ottla.cli.kafka_scripts", "zookeeper-server-start.sh", str(file)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == f"ottla zookeeper ready on 127.0.0.1:{port}\n"
        process.send_signal(signal.SIGTERM)
        _, said = process.communicate(timeout=SECONDS_MAX)
    finally:
        process.kill()
    assert process.returncode == 128 + signal.SIGTERM  # Java's way to say that it was asked to end
    assert said.startswith(f"ottla zookeeper: port {port} is open to the network")


def test_zookeepers_own_shell_reads_the_tree(zookeeper: ZooKeeperProcess, chroot: str) -> None:
    async def make() -> None:
        store = ZooKeeperStore(zookeeper.connect + chroot)
        await store.open()
        await store.multi([CreateNode("/brokers"), CreateNode("/brokers/ids"), CreateNode("/brokers/ids/3", b"{}")])
        await store.close()

    asyncio.run(make())
    command = [sys.executable, "-m", "ottla.cli.kafka_scripts", "zookeeper-shell.sh", zookeeper.connect + chroot]
    ended = subprocess.run(
        [*command, "get", "/brokers/ids/3"], check=False, capture_output=True, text=True, timeout=SECONDS_MAX
    )
    assert ended.returncode == 0
    assert ended.stdout.splitlines()[-1] == "{}"


@pytest.fixture
def ensemble(tmp_path: Path) -> Iterator[list[ZooKeeperProcess]]:
    quorum = ",".join(f"127.0.0.1:{free_port()}:{free_port()}" for _ in range(3))
    with ExitStack() as stack:
        servers = []
        for number in (1, 2, 3):
            options = ("--server-id", str(number), "--ensemble", quorum)
            servers.append(ZooKeeperProcess(tmp_path / f"server{number}", options=options))
            stack.callback(servers[-1].close)
        for server in servers:
            server.start(wait=False)
        for server in servers:
            server.wait_until_ready()
        yield servers


def test_an_ensemble_serves_without_any_one_of_its_servers(ensemble: list[ZooKeeperProcess]) -> None:
    async def body() -> None:
        store = ZooKeeperStore(",".join(server.connect for server in ensemble) + "/cluster")
        await store.open()
        session_id = store.session_id
        await store.multi([CreateNode("/a", b"0"), CreateNode("/e", is_ephemeral=True)])
        for number, server in enumerate(ensemble):  # the leader and the server of our connection are among them
            await asyncio.to_thread(server.kill)
            async with asyncio.timeout(SECONDS_MAX):
                [outcome] = await store.multi([SetNode("/a", b"%d" % number, number)])
            assert outcome.version == number + 1
            await asyncio.to_thread(server.start)
        assert store.session_id == session_id
        assert await store.get("/e") is not None
        await store.close()

    asyncio.run(body())


def test_an_id_that_belongs_to_another_server_is_refused(tmp_path: Path) -> None:
    (tmp_path / "myid").write_text("2\n")
    words = ["--data", str(tmp_path), "--server-id", "1", "--ensemble", "a:1:2,b:1:2", "--port", str(free_port())]
    ended = run_command(*words)
    assert (ended.returncode, ended.stdout) == (2, "")
    assert "has another number than --server-id 1" in ended.stderr
