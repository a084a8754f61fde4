"""`ottla broker`: modules that are loaded only on first use, and init scripts."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from ottla.cli.commands.broker import SELDOM_USED, run_init_scripts
from ottla.cli.terminal import ToolError

OTHERS = {"_hashlib", "_ssl", "_sqlite3", "crc32c", "csv", "email", "http.client", "importlib.metadata", "kazoo"}
MORE_OTHERS = {"multiprocessing", "tempfile", "urllib.request", "yaml", "zipfile"}
OURS = {
    "ottla.broker.cluster.broker_lifecycle",
    "ottla.broker.metrics_endpoint.endpoint",
    "ottla.broker.security.tls",
    "ottla.cli.processes.multi_process",
    "ottla.client.client",
    "ottla.controller.stores.zookeeper.client",
    "ottla.storage.cleaning.cleaner",
}
PROGRAM = """
import sys
from ottla.cli.commands.broker import load_broker
from ottla.base.lazy_modules import is_loaded
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
    loaded = loaded_after("import ottla.broker.cluster.broker_lifecycle")
    assert "kazoo.client" in loaded
    assert loaded & ({"_hashlib", "_sqlite3", "_ssl", "ctypes", "ottla.security.tls"} | SELDOM_USED) == set()


def test_a_late_module_is_loaded_on_first_use() -> None:
    loaded = loaded_after("import asyncio, ssl; ssl.create_default_context(); asyncio.sslproto.SSLProtocol")
    assert loaded >= {"_ssl", "asyncio.sslproto", "ssl"}


BASE = {"PATH": os.environ["PATH"], "KEPT": "a\nb = c"}


def script(folder: Path, name: str, text: str, *, executable: bool = False) -> None:
    path = folder / name
    path.write_text(text)
    path.chmod(0o755 if executable else 0o644)


def test_without_scripts_nothing_runs(tmp_path: Path) -> None:
    assert run_init_scripts(BASE, tmp_path / "none") == BASE
    assert run_init_scripts(BASE, tmp_path) == BASE


def test_exported_variables_of_a_script_are_settings(tmp_path: Path) -> None:
    commands = "export KAFKA_NUM_PARTITIONS=3; unset GONE"
    result = run_init_scripts({**BASE, "CUSTOM_INIT_SCRIPT": commands, "GONE": "1"}, tmp_path)
    assert result["KAFKA_NUM_PARTITIONS"] == "3"
    assert result["KEPT"] == BASE["KEPT"]
    assert "GONE" not in result


def test_a_script_may_write_the_settings_file(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "server.properties"
    commands = f"echo restoring; echo num.partitions=4 > {file}"
    run_init_scripts({**BASE, "CUSTOM_INIT_SCRIPT": commands}, tmp_path)
    assert file.read_text() == "num.partitions=4\n"
    output = capfd.readouterr()
    assert (output.out, output.err) == ("", "restoring\n")


def test_scripts_of_the_folder_run_in_the_order_of_their_names(tmp_path: Path) -> None:
    script(tmp_path, "20-b.sh", "export ORDER=$ORDER-b")
    script(tmp_path, "10-a.sh", "export ORDER=a")
    script(tmp_path, "30-run.sh", "#!/bin/sh\necho $ORDER > $(dirname $0)/seen\nexport ORDER=lost", executable=True)
    script(tmp_path, "notes.txt", "export ORDER=wrong")
    result = run_init_scripts(BASE, tmp_path)
    assert (result["ORDER"], (tmp_path / "seen").read_text()) == ("a-b", "a-b\n")
    assert "OTTLA_INIT_SCRIPT" not in result


@pytest.mark.parametrize("commands", ["exit 3", "false; true", "no-such-command-at-all", "if"])
def test_a_script_that_fails_stops_the_start(tmp_path: Path, commands: str) -> None:
    with pytest.raises(ToolError, match="CUSTOM_INIT_SCRIPT ended with exit code"):
        run_init_scripts({**BASE, "CUSTOM_INIT_SCRIPT": commands}, tmp_path)
