"""Properties of clients."""

from __future__ import annotations

from pathlib import Path

import pytest

from ottla.cli.client_settings import command_properties, load_properties, make_client
from ottla.cli.terminal import ToolError, UsageError


def test_a_file_is_read_as_java_reads_it(tmp_path: Path) -> None:
    path = tmp_path / "client.properties"
    path.write_text("# comment\nacks = all\nlinger.ms:5\n")
    assert load_properties(str(path)) == {"acks": "all", "linger.ms": "5"}


def test_a_readable_password_file_causes_a_warning(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "client.properties"
    path.write_text("sasl.password=geheim\n")
    path.chmod(0o644)
    load_properties(str(path))
    warning = capsys.readouterr().err
    assert f"chmod 600 {path}" in warning
    assert "geheim" not in warning
    path.chmod(0o600)
    load_properties(str(path))
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize(
    ("content", "words"),
    [(None, "cannot read .*: no such file or directory"), ("a=\\u12", "line 1"), ("x" * 1_048_577, "is larger than")],
)
def test_a_file_that_cannot_be_used_is_named(tmp_path: Path, content: str | None, words: str) -> None:
    path = tmp_path / "client.properties"
    if content is not None:
        path.write_text(content)
    with pytest.raises(ToolError, match=words):
        load_properties(str(path))


def test_a_login_follows_the_properties(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("KAFKA_OPTS", raising=False)
    sasl = {"security.protocol": "sasl_plaintext", "sasl.username": "a", "sasl.password": "geheim"}
    for name in ("PLAIN", "SCRAM-SHA-256", "scram-sha-512"):
        login = make_client("a:1", {**sasl, "sasl.mechanism": name}).login
        assert login is not None
        assert login.mechanism == name.upper()
        assert "geheim" not in repr(login)
    assert make_client("a:1", {**sasl, "security.protocol": "PLAINTEXT"}).login is None
    for properties, message in (
        ({**sasl, "sasl.mechanism": "NTLM"}, "sasl.mechanism=NTLM is not supported"),
        ({"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "PLAIN"}, "PLAIN needs a username"),
        ({**sasl, "sasl.mechanism": "PLAIN", "sasl.jaas.config": "x"}, r"sasl\.jaas\.config: line 1"),
    ):
        with pytest.raises(UsageError, match=message):
            make_client("a:1", properties)


def test_a_file_can_be_named_by_a_variable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    first.write_text("client.id=one\n")
    second.write_text("client.id=two\n")
    monkeypatch.delenv("OTTLA_COMMAND_CONFIG", raising=False)
    assert command_properties(None) == {}
    monkeypatch.setenv("OTTLA_COMMAND_CONFIG", str(first))
    assert command_properties(None) == {"client.id": "one"}
    assert command_properties(str(second)) == {"client.id": "two"}


def test_the_client_follows_the_properties() -> None:
    client = make_client("a:1", {"client.id": "me", "request.timeout.ms": "500"})
    assert (client.client_id, client.timeout_ms) == ("me", 500)
    with pytest.raises(ToolError, match=r"security\.protocol=TLS is not known: it is one of PLAINTEXT, SSL"):
        make_client("a:1", {"security.protocol": "TLS"})
    assert make_client("a:1").tls is None
    assert make_client("a:1", {"security.protocol": "SSL"}).tls is not None
