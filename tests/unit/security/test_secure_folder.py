"""Keys and passwords that are made for a cluster."""

from __future__ import annotations

import ssl
import stat
from datetime import UTC, datetime
from pathlib import Path

import pytest

from ottla.security.certificate_authority import issue, new_authority, write_secret
from ottla.security.secure_folder import SecureFolder

NOW = datetime(2026, 11, 16, tzinfo=UTC)


def shake_hands(server_file: Path, authority: bytes, host: str) -> None:
    """In memory; raises what a client raises that does not trust the server."""
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.load_cert_chain(server_file)
    client = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    client.load_verify_locations(cadata=authority.decode())
    client.verify_flags &= ~ssl.VERIFY_X509_STRICT
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    ends = [
        client.wrap_bio(to_client, to_server, server_hostname=host),
        server.wrap_bio(to_server, to_client, server_side=True),
    ]
    for _ in range(4):
        for end in ends:
            try:
                end.do_handshake()
            except ssl.SSLWantReadError:
                continue
    assert all(end.version() == "TLSv1.3" for end in ends)


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "::1"])
def test_who_trusts_the_authority_trusts_its_brokers(tmp_path: Path, host: str) -> None:
    authority = new_authority("ottla", datetime.now(UTC))
    issued = issue(authority, "broker-1", ("127.0.0.1", "localhost", "::1"), datetime.now(UTC))
    write_secret(tmp_path / "broker.pem", issued.key + issued.certificate)
    shake_hands(tmp_path / "broker.pem", authority.certificate, host)


@pytest.mark.parametrize(("days", "host"), [(-2, "localhost"), (10, "elsewhere.example")])
def test_an_expired_certificate_and_another_host_are_not_trusted(tmp_path: Path, days: int, host: str) -> None:
    authority = new_authority("ottla", datetime.now(UTC))
    issued = issue(authority, "broker-1", ("localhost",), datetime.now(UTC), days if days > 0 else 0)
    if days < 0:
        issued = issue(authority, "broker-1", ("localhost",), NOW.replace(year=2020), 1)
    write_secret(tmp_path / "broker.pem", issued.key + issued.certificate)
    with pytest.raises(ssl.SSLCertVerificationError):
        shake_hands(tmp_path / "broker.pem", authority.certificate, host)


def test_what_was_made_once_is_used_again(tmp_path: Path) -> None:
    first = SecureFolder(tmp_path / "security", ("127.0.0.1",), NOW)
    again = SecureFolder(tmp_path / "security", ("127.0.0.1",), NOW)
    assert first.broker_settings(1) == again.broker_settings(1)
    assert first.client_settings() == again.client_settings()
    assert first.password("admin") != first.password("broker")


@pytest.mark.parametrize("protocol", ["SSL", "SASL_PLAINTEXT", "SASL_SSL"])
def test_only_the_owner_can_read_it(tmp_path: Path, protocol: str) -> None:
    folder = SecureFolder(tmp_path / "security", ("127.0.0.1",), NOW, protocol)
    folder.write_settings("broker.properties", folder.broker_settings(1))
    folder.write_settings("admin.properties", folder.client_settings())
    readable = {path.name for path in folder.path.iterdir() if stat.S_IMODE(path.stat().st_mode) & 0o077}
    assert readable == {"ca.pem"}
    assert stat.S_IMODE(folder.path.stat().st_mode) == 0o700


def test_super_users_are_named_as_they_log_in(tmp_path: Path) -> None:
    by_password = SecureFolder(tmp_path / "a", (), NOW, "SASL_SSL").broker_settings(1)
    by_certificate = SecureFolder(tmp_path / "b", (), NOW, "SSL").broker_settings(1)
    assert by_password["super.users"] == "User:admin;User:broker"
    assert by_certificate["super.users"] == "User:CN=admin;User:CN=broker"
    assert (by_password["ssl.client.auth"], by_certificate["ssl.client.auth"]) == ("none", "required")
