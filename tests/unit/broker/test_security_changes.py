"""Logins of other settings while the broker runs: tried first, then in force from the next handshake on."""

from __future__ import annotations

import asyncio
import ssl
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from certificates import Authority
from ottla.base.broker_settings import BrokerSettings
from ottla.base.errors import Error
from ottla.broker.security.changes import Makers, SecurityChangeError, SecurityChanges, is_security_key
from ottla.broker.security.peer_login import PeerLogin, inter_broker_login
from ottla.broker.security.tls import BrokerTls
from ottla.security.tls import TlsError
from unit.broker.test_logins import GOOD, KEY, PLAIN, SETTINGS, Stand, rules_of
from virtual_time import LoopClock, run

OTHERS = {KEY: f'{PLAIN} user_alice="neu" username="b" password="p";'}
SHORT = {"connections.max.reauth.ms": "60000"}


class Scene:
    """One open connection, and the changes of its broker."""

    def __init__(self, peer_login: PeerLogin | None = None, workers: Any = None) -> None:
        self.settings = BrokerSettings({**SETTINGS, **SHORT})
        self.stand = Stand({**SETTINGS, **SHORT})
        self.logins = self.stand.broker.logins
        makers = Makers(
            lambda settings: rules_of(settings.texts, self.stand.clock),
            lambda settings: inter_broker_login(settings, {}),
        )
        workers = workers or ThreadPoolExecutor(1)
        self.changes = SecurityChanges(self.settings, makers, self.logins, peer_login, None, workers)

    def with_changes(self, texts: dict[str, str]) -> BrokerSettings:
        return self.settings.with_dynamic({}, texts)


def test_a_repeated_login_needs_the_new_password() -> None:
    async def scene() -> None:
        here = Scene()
        await here.stand.handshake()
        assert (await here.stand.authenticate(GOOD)).error_code == Error.NONE
        here.changes.follow(here.with_changes(OTHERS))
        await here.changes.settled()
        await asyncio.sleep(2)
        assert (await here.stand.handshake()).error_code == Error.NONE
        assert (await here.stand.authenticate(GOOD)).error_code == Error.SASL_AUTHENTICATION_FAILED

    run(scene())


def test_a_mechanism_that_was_taken_away_is_not_offered() -> None:
    async def scene() -> None:
        here = Scene()
        here.changes.follow(here.with_changes({"sasl.enabled.mechanisms": "SCRAM-SHA-512"}))
        await here.changes.settled()
        answer = await here.stand.handshake()
        assert (answer.error_code, answer.mechanisms) == (Error.UNSUPPORTED_SASL_MECHANISM, ["SCRAM-SHA-512"])

    run(scene())


def test_what_does_not_work_is_refused_and_changes_nothing(caplog: pytest.LogCaptureFixture) -> None:
    async def scene() -> None:
        here = Scene()
        broken = here.with_changes({KEY: f'{PLAIN} user_alice="secret'})
        with pytest.raises(SecurityChangeError, match=r"line 1: .*") as refused:
            await here.changes.check(broken)
        assert "secret" not in str(refused.value)
        with pytest.raises(SecurityChangeError, match="names NO_SUCH"):
            await here.changes.check(here.with_changes({"sasl.enabled.mechanisms": "NO_SUCH"}))
        here.changes.follow(broken)
        await here.changes.settled()
        await here.stand.handshake()
        assert (await here.stand.authenticate(GOOD)).error_code == Error.NONE

    run(scene())
    assert "the old ones stay in force" in caplog.text
    assert "secret" not in caplog.text


def test_the_brokers_own_login_follows() -> None:
    async def scene() -> None:
        before = {**SETTINGS, **OTHERS, "inter.broker.listener.name": "SASL_PLAINTEXT"}
        between = {**before, "sasl.mechanism.inter.broker.protocol": "PLAIN"}
        login = inter_broker_login(BrokerSettings(between), {})
        assert login is not None
        with ThreadPoolExecutor(1) as workers:
            peer_login = PeerLogin(login, workers)
            here = Scene(peer_login, workers)
            here.settings = BrokerSettings(between)
            await here.changes.check(here.with_changes({"sasl.kerberos.min.time.before.relogin": "58000"}))
            other = here.with_changes({KEY: f'{PLAIN} user_c="n" username="c" password="n";'})
            here.changes.follow(other)
            await here.changes.settled()
            assert peer_login.login.make("h").first() == b"\0c\0n"
            with pytest.raises(SecurityChangeError, match="must be included in sasl"):
                await here.changes.check(here.with_changes({"sasl.mechanism.inter.broker.protocol": "GSSAPI"}))

    run(scene())


def test_tls_of_other_settings_and_of_inline_certificates(tmp_path: Path) -> None:
    authority = Authority()
    first, second = authority.issue("broker"), authority.issue("broker")
    texts = {
        "listeners": "SSL://127.0.0.1:1,SASL_SSL://127.0.0.1:2",
        "ssl.keystore.location": first.pem(tmp_path / "first.pem"),
        "ssl.truststore.location": authority.certificate_pem(tmp_path / "ca.pem"),
    }
    settings = BrokerSettings(texts)

    async def scene() -> None:
        with ThreadPoolExecutor(1) as workers:
            tls = BrokerTls(settings, LoopClock(), workers)
            ssl_listener, sasl_listener = tls.listeners["SSL"], tls.listeners["SASL_SSL"]
            before = sasl_listener.context()
            for bad in (
                {"listener.name.ssl.ssl.cipher.suites": "NO_SUCH"},
                {"listener.name.ssl.ssl.principal.mapping.rules": "RULE:("},
                {"listener.name.sasl_ssl.ssl.keystore.key": "no key"},
                {"ssl.enabled.protocols": "TLSv1.1"},
            ):
                with pytest.raises(TlsError):
                    tls.check(settings.with_dynamic({}, bad))
            assert ssl_listener.principal(first.der) == "User:CN=broker"

            good = {
                "ssl.client.auth": "required",  # not where a login follows
                "listener.name.ssl.ssl.principal.mapping.rules": "RULE:^CN=(.*)$/$1/U",
                "listener.name.sasl_ssl.ssl.keystore.key": second.key_pem(),
                "listener.name.sasl_ssl.ssl.keystore.certificate.chain": second.chain_pem,
                "listener.name.sasl_ssl.ssl.keystore.location": "",
            }
            changed = settings.with_dynamic({}, good)
            tls.check(changed)
            assert ssl_listener.context().verify_mode is ssl.CERT_NONE  # only tried
            tls.follow(changed)
            await tls.look()
            assert ssl_listener.context().verify_mode is ssl.CERT_REQUIRED
            assert ssl_listener.principal(first.der) == "User:BROKER"
            assert sasl_listener.context().verify_mode is ssl.CERT_NONE
            assert sasl_listener.context() is not before

    run(scene())


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("ssl.cipher.suites", True),
        ("listener.name.a.ssl.keystore.location", True),
        ("listener.name.a.plain.sasl.jaas.config", True),
        ("listener.name.a.plain.connections.max.reauth.ms", True),
        ("listener.name.a.max.connections", False),
        ("log.retention.ms", False),
    ],
)
def test_which_settings_are_about_it(name: str, expected: bool) -> None:
    assert is_security_key(name) is expected
