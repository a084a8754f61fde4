"""`ottla registry` before its start: each problem is one line."""

import socket
from pathlib import Path

import pytest

from ottla.cli.commands.registry import _parser, _read_config
from ottla.cli.main import main
from ottla.cli.processes.sidecars import REGISTRY_HAS_NO_LOGIN, make_registry_sidecar


def run_registry(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str]:
    code = main(["registry", *words])
    return code, capsys.readouterr().err


def test_other_machines_are_allowed_only_on_request(capsys: pytest.CaptureFixture[str]) -> None:
    code, line = run_registry(capsys, "--host", "0.0.0.0")
    assert (code, line.count("\n")) == (2, 1)
    assert "--insecure" in line


def test_a_listener_in_the_file_does_not_open_the_registry(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Confluent's own file binds all addresses: that alone must not open the registry."""
    (tmp_path / "r.properties").write_text("listeners=http://0.0.0.0:8081\n")
    code, line = run_registry(capsys, "--config", str(tmp_path / "r.properties"))
    assert code == 2
    assert "--insecure" in line


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("listeners=https://:8081", "only http://HOST:PORT is supported"),
        ("schema.compatibility.level=most", "is not a level"),
        ("kafkastore.security.protocol=SECRET", "security.protocol=SECRET is not known"),
    ],
)
def test_a_wrong_file(tmp_path: Path, capsys: pytest.CaptureFixture[str], text: str, problem: str) -> None:
    (tmp_path / "r.properties").write_text(text)
    code, line = run_registry(capsys, "--config", str(tmp_path / "r.properties"))
    assert (code, line.count("\n")) == (2, 1)
    assert problem in line


def test_a_port_that_is_taken(capsys: pytest.CaptureFixture[str]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        code, line = run_registry(capsys, "--port", str(port))
    assert code == 1
    assert f"port {port} on 127.0.0.1 is in use" in line


def test_the_command_line_overrides_the_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "r.properties"
    file.write_text(
        "listeners=http://127.0.0.1:9999\nkafkastore.bootstrap.servers=PLAINTEXT://far:1\nkafkastore.topic=_file\n"
        "schema.compatibility.level=none\nzebra=1\nauthentication.roles=x\n"
    )
    config = _read_config(
        _parser().parse_args(["--config", str(file), "--port", "7777", "--bootstrap-server", "near:2"])
    )
    assert (config.host, config.port, config.bootstrap) == ("127.0.0.1", 7777, "near:2")
    assert (config.topic, config.default_level) == ("_file", "NONE")
    lines = capsys.readouterr().err
    assert lines.count("\n") == 1
    assert "without an effect here: authentication.roles, zebra" in lines


def test_a_secured_cluster_has_no_registry_without_a_login() -> None:
    messages: list[str] = []
    assert make_registry_sidecar(None, messages.append, is_enabled=True, is_secure=True) is None
    assert make_registry_sidecar(None, messages.append, is_enabled=False, is_secure=True) is None
    assert messages == [REGISTRY_HAS_NO_LOGIN]
