"""Brokers without a number get one from ZooKeeper and keep it."""

import asyncio
from pathlib import Path

import pytest

from ottla.base.broker_settings import load_broker_settings
from ottla.base.clock import SystemClock
from ottla.broker.startup import resolve_node_id
from ottla.controller.cluster.registration import allocate_broker_id
from ottla.controller.stores.zookeeper.store import ZooKeeperStore
from ottla.storage.errors import LogDirError
from ottla.storage.meta_properties import write_meta_properties
from ottla.testing.zookeeper import ZooKeeperProcess


def test_generated_ids_start_above_the_reserved_ones_and_are_unique(zookeeper: ZooKeeperProcess, chroot: str) -> None:
    async def body() -> list[int]:
        stores = [ZooKeeperStore(zookeeper.connect + chroot) for _ in range(3)]
        for store in stores:
            await store.open()
        found = await asyncio.gather(*(allocate_broker_id(store, 1000) for store in stores for _ in range(5)))
        for store in stores:
            await store.close()
        return found

    assert sorted(asyncio.run(body())) == list(range(1001, 1016))


def settings_of(zookeeper: ZooKeeperProcess, chroot: str, folders: list[Path], **more: str) -> dict[str, str]:
    return {
        "zookeeper.connect": zookeeper.connect + chroot,
        "listeners": "PLAINTEXT://127.0.0.1:0",
        "log.dirs": ",".join(map(str, folders)),
        **{name.replace("_", "."): value for name, value in more.items()},
    }


def numbered(texts: dict[str, str]) -> int:
    settings = load_broker_settings(None, texts)
    return asyncio.run(resolve_node_id(settings, SystemClock())).node_id


def test_a_number_in_the_folders_stays(zookeeper: ZooKeeperProcess, chroot: str, tmp_path: Path) -> None:
    folders = [tmp_path / "a", tmp_path / "b"]
    for folder in folders:
        folder.mkdir()
    texts = settings_of(zookeeper, chroot, folders, reserved_broker_max_id="50")
    assert numbered(texts) == 51
    assert numbered(texts) == 52, "nothing was kept yet"
    write_meta_properties(str(folders[0]), 51, "cluster")
    assert numbered(texts) == 51
    write_meta_properties(str(folders[1]), 52, "cluster")
    with pytest.raises(LogDirError, match="belong to different brokers"):
        numbered(texts)
    assert numbered(texts | {"broker.id": "7"}) == 7
