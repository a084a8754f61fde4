"""A broker that starts while ZooKeeper accepts connections and does not answer, or not any more."""

import asyncio
import sys
from pathlib import Path

import pytest
from tests.cluster.zookeeper_proxy import ZooKeeperProxy

from ottla.testing.zookeeper import ZooKeeperProcess

SECONDS_MAX = 30.0
CONNECTION_MS = 1500
SESSION_MS = 1000
BROKER = (
    "import sys; from ottla.base.broker_settings import BrokerSettings; from ottla.broker.main import run_broker;"
    "settings = dict(pair.split('=', 1) for pair in sys.argv[1:]); sys.exit(run_broker(BrokerSettings(settings)))"
)


async def start(connect: str, folder: Path, broker_id: int) -> tuple[int | None, str]:
    settings = {
        "broker.id": broker_id,
        "listeners": "PLAINTEXT://127.0.0.1:0",
        "log.dirs": folder,
        "zookeeper.connect": connect,
        "zookeeper.session.timeout.ms": SESSION_MS,
        "zookeeper.connection.timeout.ms": CONNECTION_MS,
    }
    pairs = [f"{key}={value}" for key, value in settings.items()]
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", BROKER, *pairs, stderr=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.DEVNULL
    )
    try:
        _, errors = await asyncio.wait_for(process.communicate(), SECONDS_MAX)
    except TimeoutError:
        process.kill()
        raise
    return process.returncode, errors.decode()


@pytest.mark.parametrize(("requests", "broker_id"), [(0, 1), (8, 1), (42, 1), (0, -1), (6, -1)])
def test_the_start_ends_with_one_line(
    zookeeper: ZooKeeperProcess, chroot: str, tmp_path: Path, requests: int, broker_id: int
) -> None:
    """ZooKeeper falls silent after so many requests, the first of which opens the session; id -1: it is to give one."""

    async def play() -> tuple[int | None, str]:
        async with ZooKeeperProxy(zookeeper.port) as proxy:
            proxy.silent_after = requests
            return await start(proxy.connect + chroot, tmp_path, broker_id)

    code, text = asyncio.run(play())
    assert code == 1, text
    assert "Traceback" not in text
    lines = [line for line in text.splitlines() if line and not line.startswith("[")]
    assert len(lines) == 1, text
    assert lines[0].startswith("ottla broker: ")
    assert "ZooKeeper" in lines[0]
