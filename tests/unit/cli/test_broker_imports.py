"""What a broker does not load before somebody needs it: memory of every broker, and time of every start."""

from __future__ import annotations

import subprocess
import sys

from ottla.cli.commands.broker import SELDOM_USED

OTHERS = {"_hashlib", "_ssl", "_sqlite3", "crc32c", "csv", "email", "http.client", "importlib.metadata", "kazoo"}
MORE_OTHERS = {"multiprocessing", "tempfile", "urllib.request", "yaml", "zipfile"}
OURS = {
    "ottla.broker.cluster.clustering",
    "ottla.broker.monitoring.monitor",
    "ottla.broker.security.tls",
    "ottla.cli.running.processes",
    "ottla.client.client",
    "ottla.controller.stores.zookeeper.client",
    "ottla.storage.cleaning.log",
}
PROGRAM = """
import sys
from ottla.cli.commands.broker import load_broker
from ottla.base.late_modules import is_loaded
load_broker()
print(*filter(is_loaded, sys.modules))
"""


def test_a_broker_loads_nothing_that_most_brokers_never_use() -> None:
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=True)
    loaded = set(done.stdout.split())
    assert "ottla.broker.main" in loaded
    assert loaded & (OTHERS | MORE_OTHERS | OURS | SELDOM_USED) == set()
