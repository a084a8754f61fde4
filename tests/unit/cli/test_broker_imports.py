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
{more}
print(*filter(is_loaded, sys.modules))
"""


def loaded_after(more: str = "") -> set[str]:
    program = PROGRAM.format(more=more)
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    return set(done.stdout.split())


def test_a_broker_loads_nothing_that_most_brokers_never_use() -> None:
    loaded = loaded_after()
    assert "ottla.broker.main" in loaded
    assert loaded & (OTHERS | MORE_OTHERS | OURS | SELDOM_USED) == set()


def test_a_broker_of_a_cluster_loads_zookeepers_client_and_no_tls_for_it() -> None:
    loaded = loaded_after("import ottla.broker.cluster.clustering")
    assert "kazoo.client" in loaded
    assert loaded & ({"_hashlib", "_sqlite3", "_ssl", "ctypes", "ottla.security.tls"} | SELDOM_USED) == set()


def test_whoever_uses_one_of_them_gets_it() -> None:
    loaded = loaded_after("import asyncio, ssl; ssl.create_default_context(); asyncio.sslproto.SSLProtocol")
    assert loaded >= {"_ssl", "asyncio.sslproto", "ssl"}
