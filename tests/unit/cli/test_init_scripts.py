"""Scripts that run before a broker in a container reads its settings."""

import os
from pathlib import Path

import pytest

from ottla.cli.running.init_scripts import run_init_scripts
from ottla.cli.terminal import ToolError

BASE = {"PATH": os.environ["PATH"], "KEPT": "a\nb = c"}


def script(folder: Path, name: str, text: str, *, executable: bool = False) -> None:
    path = folder / name
    path.write_text(text)
    path.chmod(0o755 if executable else 0o644)


def test_without_scripts_nothing_runs(tmp_path: Path) -> None:
    assert run_init_scripts(BASE, tmp_path / "none") == BASE
    assert run_init_scripts(BASE, tmp_path) == BASE


def test_what_a_script_exports_counts_as_set(tmp_path: Path) -> None:
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
    said = capfd.readouterr()
    assert (said.out, said.err) == ("", "restoring\n")


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
