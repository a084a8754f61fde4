"""`ottla monitor`: options rejected before the start."""

import socket
import subprocess
import sys
from pathlib import Path

import pytest

from ottla.cli.main import main


def refused(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str]:
    try:
        code = main(["monitor", *words])
    except SystemExit as end:
        code = int(end.code or 0)
    return code, capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        (["--port", "99999"], "99999 is not a port"),
        (["--port", "x"], "'x' is not a whole number"),
        (["--bootstrap-server", "a:port"], "is not a broker address"),
        (["--host", "0.0.0.0"], "use --insecure"),
        (["--config", "/none/monitor.yaml"], "cannot read /none/monitor.yaml: no such file or directory"),
        (["--confg", "x"], "did you mean --config?"),
    ],
)
def test_mistakes_end_with_two_and_one_line(capsys: pytest.CaptureFixture[str], words: list[str], problem: str) -> None:
    code, text = refused(capsys, *words)
    assert code == 2
    assert problem in text
    assert "Traceback" not in text


def test_a_mistake_in_the_file_names_the_file(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    file = tmp_path / "monitor.yaml"
    file.write_text("alerts: [{name: a, when: moon}]")
    code, text = refused(capsys, "--config", str(file))
    assert (code, text.count("\n")) == (2, 1)
    assert text.startswith(f"ottla monitor: {file}: Invalid enum value 'moon'")


def test_the_cluster_is_named_in_one_place(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    file = tmp_path / "monitor.yaml"
    file.write_text("clusters: {a: {bootstrap-server: 'x:9092'}}")
    assert refused(capsys, "--config", str(file), "--bootstrap-server", "y")[0] == 2
    assert refused(capsys, "--config", str(file), "--command-config", "y")[0] == 2


def test_a_state_file_that_is_none_is_refused(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    file = tmp_path / "monitor.yaml"
    file.write_text(f"state: {file}\nhttp: {{port: 0}}")
    code, text = refused(capsys, "--config", str(file))
    assert code == 2
    assert "is not a file of alerts" in text


def test_a_port_that_is_taken(capsys: pytest.CaptureFixture[str]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        code, text = refused(capsys, "--port", str(taken.getsockname()[1]))
    assert code == 1
    assert "address already in use" in text


def test_it_starts_without_a_cluster_and_ends_on_sigterm() -> None:
    command = [sys.executable, "-m", "ottla.cli.main", "monitor", "--port", "0", "--bootstrap-server", "127.0.0.1:1"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline().startswith("monitor of default (127.0.0.1:1): http://127.0.0.1:")
        process.terminate()
        assert process.wait(timeout=30) == 0
