"""`ottla registry` before it starts: what is wrong is told in one line."""

import socket
from pathlib import Path

import pytest

from ottla.cli.commands.registry import _config, _parser
from ottla.cli.main import main
from ottla.cli.running.registry_beside import NO_LOGIN, registry_beside


def said(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str]:
    code = main(["registry", *words])
    return code, capsys.readouterr().err


def test_other_machines_are_let_in_only_when_told(capsys: pytest.CaptureFixture[str]) -> None:
    code, line = said(capsys, "--host", "0.0.0.0")
    assert (code, line.count("\n")) == (2, 1)
    assert "--insecure" in line


def test_a_listener_of_the_file_counts_as_told_to_nobody(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Confluent's own file listens everywhere: that alone opens nothing here."""
    (tmp_path / "r.properties").write_text("listeners=http://0.0.0.0:8081\n")
    code, line = said(capsys, "--config", str(tmp_path / "r.properties"))
    assert code == 2
    assert "--insecure" in line


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("listeners=https://:8081", "only http://HOST:PORT is served"),
        ("schema.compatibility.level=most", "is no level"),
        ("kafkastore.security.protocol=SECRET", "security.protocol=SECRET is not known"),
    ],
)
def test_a_wrong_file(tmp_path: Path, capsys: pytest.CaptureFixture[str], text: str, problem: str) -> None:
    (tmp_path / "r.properties").write_text(text)
    code, line = said(capsys, "--config", str(tmp_path / "r.properties"))
    assert (code, line.count("\n")) == (2, 1)
    assert problem in line


def test_a_port_that_is_taken(capsys: pytest.CaptureFixture[str]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        code, line = said(capsys, "--port", str(port))
    assert code == 1
    assert f"port {port} on 127.0.0.1 is in use" in line


def test_the_command_line_goes_before_the_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "r.properties"
    file.write_text(
        "listeners=http://127.0.0.1:9999\nkafkastore.bootstrap.servers=PLAINTEXT://far:1\nkafkastore.topic=_file\n"
        "schema.compatibility.level=none\nzebra=1\nauthentication.roles=x\n"
    )
    config = _config(_parser().parse_args(["--config", str(file), "--port", "7777", "--bootstrap-server", "near:2"]))
    assert (config.host, config.port, config.bootstrap) == ("127.0.0.1", 7777, "near:2")
    assert (config.topic, config.default_level) == ("_file", "NONE")
    lines = capsys.readouterr().err
    assert lines.count("\n") == 1
    assert "without an effect here: authentication.roles, zebra" in lines


def test_behind_logins_there_is_no_registry_without_one() -> None:
    heard: list[str] = []
    assert registry_beside(None, heard.append, is_wanted=True, is_secure=True) is None
    assert registry_beside(None, heard.append, is_wanted=False, is_secure=True) is None
    assert heard == [NO_LOGIN]
