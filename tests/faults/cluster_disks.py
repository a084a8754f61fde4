"""Clusters with faulty disks: writes fail, are slow or are lost."""

import hashlib
import os
from collections.abc import Callable
from pathlib import Path

from tests.faults.disk_faults import WRAPPER as FAILING
from tests.faults.disk_faults import DiskFaults

from ottla.testing.cluster import Cluster, ClusterBroker

FORGETFUL = Path(__file__).parent / "forgetful_disk"


def python_path(folder: Path) -> str:
    return os.pathsep.join([str(folder), *filter(None, [os.environ.get("PYTHONPATH")])])


def cluster_with_faults(
    factory: Callable[..., Cluster], folder: Path, **details: object
) -> tuple[Cluster, dict[int, DiskFaults]]:
    """Each broker has faults of its own, by its id."""
    faults = {broker_id: DiskFaults(folder / f"faults-{broker_id}") for broker_id in (1, 2, 3)}
    environments = {
        broker_id: {"PYTHONPATH": python_path(FAILING), "OTTLA_TEST_FAULTS": str(each.directory)}
        for broker_id, each in faults.items()
    }
    return factory(environments=environments, **details), faults


def forgetful_cluster(factory: Callable[..., Cluster], folder: Path, **details: object) -> tuple[Cluster, Path]:
    """A cluster that can lose power, and the folder with what is known to be on disk."""
    synced = folder / "synced"
    synced.mkdir()
    environment = {"PYTHONPATH": python_path(FORGETFUL), "OTTLA_TEST_SYNCED": str(synced)}
    return factory(environments=dict.fromkeys((1, 2, 3), environment), **details), synced


def lose_power(broker: ClusterBroker, synced: Path) -> int:
    """A kill, and everything that was not synced is gone; how many bytes that was. Directories keep their entries."""
    broker.kill()
    lost = 0
    for folder in broker.log_folders:
        for path in folder.rglob("*.log"):
            note = synced / hashlib.sha1(str(path).encode()).hexdigest()
            size = int(note.read_text().split(" ", 1)[0]) if note.exists() else 0
            lost += max(0, path.stat().st_size - size)
            if path.stat().st_size > size:
                os.truncate(path, size)
        (folder / ".kafka_cleanshutdown").unlink(missing_ok=True)
    return lost
