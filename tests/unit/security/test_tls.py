"""Contexts out of settings: whom they let in, and what they say about settings that cannot be."""

import ssl
import stat
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path

import pytest
from tests.certificates import PASSWORD, Authority

from ottla.base.broker_keys.security import TlsKeys
from ottla.base.tls_problems import describe_tls_error
from ottla.security.client_tls import client_tls_context, librdkafka_pem
from ottla.security.secure_folder import SecurityDir, issue_certificate, new_authority, write_secret
from ottla.security.tls import ReloadingTlsContext, TlsError, client_context, openssl_name, server_context

AUTHORITY, STRANGER = Authority(), Authority("Stranger")
BROKER = AUTHORITY.issue("broker")


def server(texts: Mapping[str, str]) -> ssl.SSLContext:
    keys = {"ssl.keystore.key": BROKER.key_pem(), "ssl.keystore.certificate.chain": BROKER.chain_pem}
    return server_context(TlsKeys({**keys, **texts})).context


def client(texts: Mapping[str, str]) -> ssl.SSLContext:
    return client_context(TlsKeys({"ssl.truststore.certificates": AUTHORITY.chain_pem, **texts})).context


def shake(
    server: ssl.SSLContext, client: ssl.SSLContext, host: str = "localhost"
) -> tuple[ssl.SSLObject, ssl.SSLObject]:
    """A handshake in memory, and one byte, since a client of TLS 1.3 learns of a refusal only with what follows."""
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    ours = server.wrap_bio(to_server, to_client, server_side=True)
    theirs = client.wrap_bio(to_client, to_server, server_hostname=host)
    for _ in range(5):
        for side in (theirs, ours):
            try:
                side.do_handshake()
            except ssl.SSLWantReadError:
                continue
    return ours, theirs


def refusal(server: ssl.SSLContext, client: ssl.SSLContext, host: str = "localhost") -> str:
    with pytest.raises(ssl.SSLError) as caught:
        shake(server, client, host)
    return describe_tls_error(caught.value)


# ---- versions and cipher suites


@pytest.mark.parametrize(
    ("texts", "version"),
    [
        ({}, "TLSv1.3"),
        ({"ssl.enabled.protocols": "TLSv1.2"}, "TLSv1.2"),
        ({"ssl.enabled.protocols": "TLSv1.1,TLSv1.2"}, "TLSv1.2"),
        ({"ssl.enabled.protocols": "", "ssl.protocol": "TLSv1.2"}, "TLSv1.2"),
        ({"ssl.enabled.protocols": "", "ssl.protocol": "TLS"}, "TLSv1.3"),
        ({"ssl.cipher.suites": "TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256"}, "TLSv1.2"),
    ],
)
def test_the_version_that_is_spoken(texts: dict[str, str], version: str) -> None:
    assert shake(server(texts), client({}))[0].version() == version
    assert shake(server({}), client(texts))[0].version() == version


def test_versions_that_do_not_meet() -> None:
    only = [{"ssl.enabled.protocols": version} for version in ("TLSv1.2", "TLSv1.3")]
    assert refusal(server(only[1]), client(only[0])) == "no version of TLS in common (ssl.enabled.protocols)"


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_tls_1_1_is_refused() -> None:
    old = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    old.check_hostname, old.verify_mode = False, ssl.CERT_NONE
    old.minimum_version = old.maximum_version = ssl.TLSVersion.TLSv1_1
    old.set_ciphers("ALL:@SECLEVEL=0")
    assert refusal(server({}), old) == "no version of TLS in common (ssl.enabled.protocols)"


@pytest.mark.parametrize(
    ("suites", "spoken"),
    [
        ("TLS_AES_128_GCM_SHA256", "TLS_AES_128_GCM_SHA256"),
        ("TLS_CHACHA20_POLY1305_SHA256,TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384", "TLS_CHACHA20_POLY1305_SHA256"),
        ("TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384", "ECDHE-ECDSA-AES256-GCM-SHA384"),
        ("ECDHE-ECDSA-CHACHA20-POLY1305", "ECDHE-ECDSA-CHACHA20-POLY1305"),
    ],
)
def test_the_cipher_suite_that_is_spoken(suites: str, spoken: str) -> None:
    for ours, theirs in (
        (server({"ssl.cipher.suites": suites}), client({})),
        (server({}), client({"ssl.cipher.suites": suites})),
    ):
        cipher = shake(ours, theirs)[0].cipher()
        assert cipher is not None
        assert cipher[0] == spoken


@pytest.mark.parametrize(
    ("java", "openssl"),
    [
        ("TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256", "ECDHE-RSA-AES128-GCM-SHA256"),
        ("TLS_ECDHE_ECDSA_WITH_AES_256_CBC_SHA384", "ECDHE-ECDSA-AES256-SHA384"),
        ("TLS_DHE_RSA_WITH_AES_256_CBC_SHA", "DHE-RSA-AES256-SHA"),
        ("TLS_RSA_WITH_AES_128_CBC_SHA256", "AES128-SHA256"),
        ("TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256", "ECDHE-RSA-CHACHA20-POLY1305"),
    ],
)
def test_javas_names_of_cipher_suites(java: str, openssl: str) -> None:
    assert openssl_name(java) == openssl
    assert openssl in {suite["name"] for suite in _all_suites()}


def _all_suites() -> list:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.set_ciphers("ALL:@SECLEVEL=0")
    return context.get_ciphers()


@pytest.mark.parametrize(
    ("texts", "said"),
    [
        ({"ssl.enabled.protocols": "TLSv1.1"}, "TLSv1.1 is not safe and not supported: use TLSv1.2 or TLSv1.3"),
        ({"ssl.enabled.protocols": "TLSv9"}, "TLSv9 is not a version of TLS: use TLSv1.2 or TLSv1.3"),
        ({"ssl.cipher.suites": "TLS_NULL"}, "ssl.cipher.suites: TLS_NULL is unknown or not safe"),
        (
            {"ssl.cipher.suites": "TLS_AES_128_GCM_SHA256", "ssl.enabled.protocols": "TLSv1.2"},
            "ssl.cipher.suites has none for TLSv1.2",
        ),
        ({"ssl.keystore.location": "/x"}, "set either ssl.keystore.location or ssl.keystore.key, not both"),
        (
            {"ssl.keystore.key": STRANGER.key_pem()},
            "the PEM text of ssl.keystore.*: the private key does not belong to the certificate",
        ),
        (
            {"ssl.keystore.key": BROKER.key_pem("x" * 8), "ssl.key.password": "y" * 8},
            "the PEM text of ssl.keystore.*: the password of the private key is wrong (ssl.key.password)",
        ),
        (
            {"ssl.client.auth": "required", "ssl.truststore.location": "/no/such/file"},
            "cannot read /no/such/file: no such file or directory",
        ),
    ],
)
def test_settings_that_cannot_be(texts: dict[str, str], said: str) -> None:
    with pytest.raises(TlsError) as caught:
        server(texts)
    assert str(caught.value) == said


def test_a_listener_needs_a_certificate() -> None:
    with pytest.raises(TlsError, match=r"needs a certificate: set ssl\.keystore\.location"):
        server_context(TlsKeys({}))


def test_a_key_with_a_password() -> None:
    texts = {"ssl.keystore.key": BROKER.key_pem("key secret"), "ssl.key.password": "key secret"}
    assert shake(server(texts), client({}))[0].version() == "TLSv1.3"


# ---- whom they trust


def test_a_stranger_is_not_trusted() -> None:
    strange = {"ssl.truststore.certificates": STRANGER.chain_pem}
    assert refusal(server({}), client(strange)).startswith("its certificate is refused: ")


def test_a_certificate_of_another_host_is_refused_unless_the_check_is_off() -> None:
    said = "its certificate is refused: Hostname mismatch, certificate is not valid for 'example.org'."
    assert refusal(server({}), client({}), "example.org") == said
    careless = client({"ssl.endpoint.identification.algorithm": ""})
    assert shake(server({}), careless, "example.org")[0].version()
    assert shake(server({}), client({}), "127.0.0.1")[0].version()
    with pytest.raises(TlsError, match="is not known"):
        client({"ssl.endpoint.identification.algorithm": "ldaps"})


def test_an_expired_certificate_is_refused() -> None:
    old = AUTHORITY.issue("broker", days=-1)
    texts = {"ssl.keystore.key": old.key_pem(), "ssl.keystore.certificate.chain": old.chain_pem}
    assert refusal(server(texts), client({})) == "its certificate is refused: certificate has expired"


def test_a_certificate_that_stands_in_the_trust_store_itself_is_trusted_as_in_java() -> None:
    leaf_only = AUTHORITY.issue("broker")
    leaf_only.chain = leaf_only.chain[:1]
    texts = {"ssl.keystore.key": leaf_only.key_pem(), "ssl.keystore.certificate.chain": leaf_only.chain_pem}
    assert shake(server(texts), client({"ssl.truststore.certificates": leaf_only.chain_pem}))[0].version()


@pytest.mark.parametrize("version", ["TLSv1.2", "TLSv1.3"])
def test_client_certificates(version: str) -> None:
    alice, eve = AUTHORITY.issue("alice"), STRANGER.issue("eve")
    trusting = {"ssl.truststore.certificates": AUTHORITY.chain_pem, "ssl.enabled.protocols": version}
    showing = [
        {"ssl.keystore.key": who.key_pem(), "ssl.keystore.certificate.chain": who.chain_pem} for who in (alice, eve)
    ]
    required = server({"ssl.client.auth": "required", **trusting})
    requested = server({"ssl.client.auth": "requested", **trusting})
    assert shake(required, client(showing[0]))[0].getpeercert(binary_form=True) == alice.der
    assert shake(requested, client({}))[0].getpeercert(binary_form=True) is None
    assert shake(server(trusting), client(showing[0]))[0].getpeercert(binary_form=True) is None
    assert refusal(required, client({})) == "the client shows no certificate, and ssl.client.auth=required"
    for strict in (required, requested):
        assert refusal(strict, client(showing[1])).startswith("its certificate is refused: ")


# ---- files that change


def follow(texts: dict[str, str]) -> ReloadingTlsContext:
    return ReloadingTlsContext("listener SSL", TlsKeys(texts), server_context)


def test_a_new_file_counts_for_new_connections(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    texts = {"ssl.keystore.location": BROKER.pem(tmp_path / "x")}
    live = follow(texts)
    first = live.context()
    live.refresh(TlsKeys(texts))
    assert live.context() is first
    renewed = AUTHORITY.issue("broker", days=200)
    renewed.pem(tmp_path / "new")
    (tmp_path / "new").rename(tmp_path / "x")
    live.refresh(TlsKeys(texts))
    shown = shake(live.context(), client({}))[1].getpeercert(binary_form=True)
    assert (shown, live.reloads) == (renewed.der, 1)
    assert shake(first, client({}))[1].getpeercert(binary_form=True) == BROKER.der


@pytest.mark.parametrize(
    ("name", "hosts", "allowed", "said"),
    [
        ("other", ("localhost", "127.0.0.1"), {}, "DistinguishedName does not match: existing CN=broker, new CN=other"),
        ("other", ("localhost", "127.0.0.1"), {"ssl.allow.dn.changes": "true"}, None),
        ("broker", ("localhost",), {}, "SubjectAltNames do not match: 127.0.0.1 is missing"),
        ("broker", ("localhost",), {"ssl.allow.san.changes": "true"}, None),
        ("broker", ("localhost", "127.0.0.1", "more"), {}, None),
    ],
)
def test_a_renewed_certificate_bears_the_same_names(
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    name: str,
    hosts: tuple[str, ...],
    allowed: dict[str, str],
    said: str | None,
) -> None:
    texts = {"ssl.keystore.location": BROKER.pem(tmp_path / "x"), **allowed}
    live = follow(texts)
    AUTHORITY.issue(name, hosts=hosts).pem(tmp_path / "new")
    (tmp_path / "new").rename(tmp_path / "x")
    live.refresh(TlsKeys(texts))
    assert (live.reloads, live.rejected_reloads) == ((0, 1) if said else (1, 0))
    assert said is None or said in caplog.text


def test_an_invalid_new_file_is_logged_once_and_the_old_one_stays(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    texts = {"ssl.keystore.location": BROKER.pem(tmp_path / "x")}
    live = follow(texts)
    first = live.context()
    (tmp_path / "x").write_text(BROKER.key_pem())
    for _ in range(3):
        live.refresh(TlsKeys(texts))
    assert live.context() is first
    assert [record.getMessage() for record in caplog.records] == [
        f"listener SSL: new certificates are not used: {tmp_path}/x has no certificate; the old ones stay in use"
    ]
    BROKER.pem(tmp_path / "x")
    live.refresh(TlsKeys(texts))
    assert live.context() is not first


# ---- clients


def test_a_clients_properties_in_javas_names_and_librdkafkas(tmp_path: Path) -> None:
    alice = AUTHORITY.issue("alice")
    required = server({"ssl.client.auth": "required", "ssl.truststore.certificates": AUTHORITY.chain_pem})
    (tmp_path / "key").write_text(alice.key_pem())
    (tmp_path / "chain").write_text(alice.chain_pem)
    authority = AUTHORITY.certificate_pem(tmp_path / "ca")
    java = {
        "ssl.truststore.location": authority,
        "ssl.keystore.location": alice.pkcs12(tmp_path / "alice.p12"),
        "ssl.keystore.password": PASSWORD,
    }
    own = {
        "ssl.ca.location": authority,
        "ssl.key.location": str(tmp_path / "key"),
        "ssl.certificate.location": str(tmp_path / "chain"),
    }
    for properties in (java, own):
        context = client_tls_context({"security.protocol": "ssl", **properties})
        assert context is not None
        assert shake(required, context)[0].getpeercert(binary_form=True) == alice.der
    assert client_tls_context(java) is None
    assert client_tls_context({"security.protocol": "SASL_PLAINTEXT"}) is None
    careless = client_tls_context({"security.protocol": "SSL", "ssl.endpoint.identification.algorithm": " "})
    assert careless is not None
    assert not careless.check_hostname


def test_librdkafka_gets_the_content_of_java_stores(tmp_path: Path) -> None:
    alice = AUTHORITY.issue("alice")
    found = librdkafka_pem(
        {
            "ssl.truststore.location": AUTHORITY.certificate_pem(tmp_path / "ca"),
            "ssl.keystore.location": alice.pkcs12(tmp_path / "alice.p12"),
            "ssl.keystore.password": PASSWORD,
        }
    )
    assert sorted(found) == ["ssl.certificate.pem", "ssl.key.pem"]
    assert found["ssl.certificate.pem"].count("BEGIN CERTIFICATE") == 2
    assert librdkafka_pem({"ssl.keystore.location": "/no/such/file"}) == {}


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
    issued = issue_certificate(authority, "broker-1", ("127.0.0.1", "localhost", "::1"), datetime.now(UTC))
    write_secret(tmp_path / "broker.pem", issued.key + issued.certificate)
    shake_hands(tmp_path / "broker.pem", authority.certificate, host)


@pytest.mark.parametrize(("days", "host"), [(-2, "localhost"), (10, "elsewhere.example")])
def test_an_expired_certificate_and_another_host_are_not_trusted(tmp_path: Path, days: int, host: str) -> None:
    authority = new_authority("ottla", datetime.now(UTC))
    issued = issue_certificate(authority, "broker-1", ("localhost",), datetime.now(UTC), days if days > 0 else 0)
    if days < 0:
        issued = issue_certificate(authority, "broker-1", ("localhost",), NOW.replace(year=2020), 1)
    write_secret(tmp_path / "broker.pem", issued.key + issued.certificate)
    with pytest.raises(ssl.SSLCertVerificationError):
        shake_hands(tmp_path / "broker.pem", authority.certificate, host)


def test_what_was_made_once_is_used_again(tmp_path: Path) -> None:
    first = SecurityDir(tmp_path / "security", ("127.0.0.1",), NOW)
    again = SecurityDir(tmp_path / "security", ("127.0.0.1",), NOW)
    assert first.broker_settings(1) == again.broker_settings(1)
    assert first.client_settings() == again.client_settings()
    assert first.password("admin") != first.password("broker")


@pytest.mark.parametrize("protocol", ["SSL", "SASL_PLAINTEXT", "SASL_SSL"])
def test_only_the_owner_can_read_it(tmp_path: Path, protocol: str) -> None:
    folder = SecurityDir(tmp_path / "security", ("127.0.0.1",), NOW, protocol)
    folder.write_settings("broker.properties", folder.broker_settings(1))
    folder.write_settings("admin.properties", folder.client_settings())
    readable = {path.name for path in folder.path.iterdir() if stat.S_IMODE(path.stat().st_mode) & 0o077}
    assert readable == {"ca.pem"}
    assert stat.S_IMODE(folder.path.stat().st_mode) == 0o700


def test_super_users_are_named_as_they_log_in(tmp_path: Path) -> None:
    by_password = SecurityDir(tmp_path / "a", (), NOW, "SASL_SSL").broker_settings(1)
    by_certificate = SecurityDir(tmp_path / "b", (), NOW, "SSL").broker_settings(1)
    assert by_password["super.users"] == "User:admin;User:broker"
    assert by_certificate["super.users"] == "User:CN=admin;User:CN=broker"
    assert (by_password["ssl.client.auth"], by_certificate["ssl.client.auth"]) == ("none", "required")
