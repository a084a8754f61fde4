"""Changed login settings at run time: validated first, in force from the next handshake."""

from __future__ import annotations

import asyncio
import ssl
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from tests.certificates import Authority
from tests.unit.broker.test_server_authenticator import GOOD, KEY, PLAIN, SETTINGS, Stand, rules_of
from tests.virtual_time import LoopClock, run

from ottla.base.broker_settings import BrokerSettings
from ottla.base.errors import Error
from ottla.broker.security.inter_broker_login import InterBrokerLogin, inter_broker_login
from ottla.broker.security.reconfiguration import (
    LoginFactories,
    SecurityChangeError,
    SecurityReconfiguration,
    is_security_key,
)
from ottla.broker.security.tls import BrokerTls
from ottla.security.tls import TlsError

OTHERS = {KEY: f'{PLAIN} user_alice="neu" username="b" password="p";'}
SHORT = {"connections.max.reauth.ms": "60000"}


class Scene:
    """One open connection, and the security changes of its broker."""

    def __init__(self, peer_login: InterBrokerLogin | None = None, workers: Any = None) -> None:
        self.settings = BrokerSettings({**SETTINGS, **SHORT})
        self.stand = Stand({**SETTINGS, **SHORT})
        self.logins = self.stand.broker.authenticator
        makers = LoginFactories(
            lambda settings: rules_of(settings.texts, self.stand.clock),
            lambda settings: inter_broker_login(settings, {}),
        )
        workers = workers or ThreadPoolExecutor(1)
        self.changes = SecurityReconfiguration(self.settings, makers, self.logins, peer_login, None, workers)

    def with_changes(self, texts: dict[str, str]) -> BrokerSettings:
        return self.settings.with_dynamic({}, texts)


def test_a_reauthentication_needs_the_new_password() -> None:
    async def scene() -> None:
        here = Scene()
        await here.stand.handshake()
        assert (await here.stand.authenticate(GOOD)).error_code == Error.NONE
        here.changes.apply_settings(here.with_changes(OTHERS))
        await here.changes.wait_until_applied()
        await asyncio.sleep(2)
        assert (await here.stand.handshake()).error_code == Error.NONE
        assert (await here.stand.authenticate(GOOD)).error_code == Error.SASL_AUTHENTICATION_FAILED

    run(scene())


def test_a_removed_mechanism_is_not_supported_any_more() -> None:
    async def scene() -> None:
        here = Scene()
        here.changes.apply_settings(here.with_changes({"sasl.enabled.mechanisms": "SCRAM-SHA-512"}))
        await here.changes.wait_until_applied()
        answer = await here.stand.handshake()
        assert (answer.error_code, answer.mechanisms) == (Error.UNSUPPORTED_SASL_MECHANISM, ["SCRAM-SHA-512"])

    run(scene())


def test_invalid_settings_are_refused_and_change_nothing(caplog: pytest.LogCaptureFixture) -> None:
    async def scene() -> None:
        here = Scene()
        broken = here.with_changes({KEY: f'{PLAIN} user_alice="secret'})
        with pytest.raises(SecurityChangeError, match=r"line 1: .*") as refused:
            await here.changes.validate(broken)
        assert "secret" not in str(refused.value)
        with pytest.raises(SecurityChangeError, match="contains NO_SUCH"):
            await here.changes.validate(here.with_changes({"sasl.enabled.mechanisms": "NO_SUCH"}))
        here.changes.apply_settings(broken)
        await here.changes.wait_until_applied()
        await here.stand.handshake()
        assert (await here.stand.authenticate(GOOD)).error_code == Error.NONE

    run(scene())
    assert "the old settings stay in force" in caplog.text
    assert "secret" not in caplog.text


def test_the_brokers_own_login_is_replaced() -> None:
    async def scene() -> None:
        before = {**SETTINGS, **OTHERS, "inter.broker.listener.name": "SASL_PLAINTEXT"}
        between = {**before, "sasl.mechanism.inter.broker.protocol": "PLAIN"}
        login = inter_broker_login(BrokerSettings(between), {})
        assert login is not None
        with ThreadPoolExecutor(1) as workers:
            peer_login = InterBrokerLogin(login, workers)
            here = Scene(peer_login, workers)
            here.settings = BrokerSettings(between)
            await here.changes.validate(here.with_changes({"sasl.kerberos.min.time.before.relogin": "58000"}))
            other = here.with_changes({KEY: f'{PLAIN} user_c="n" username="c" password="n";'})
            here.changes.apply_settings(other)
            await here.changes.wait_until_applied()
            assert peer_login.login.make("h").first() == b"\0c\0n"
            with pytest.raises(SecurityChangeError, match="must be included in sasl"):
                await here.changes.validate(here.with_changes({"sasl.mechanism.inter.broker.protocol": "GSSAPI"}))

    run(scene())


def test_tls_uses_changed_settings_and_inline_certificates(tmp_path: Path) -> None:
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
                "ssl.client.auth": "required",  # not for SASL listeners
                "listener.name.ssl.ssl.principal.mapping.rules": "RULE:^CN=(.*)$/$1/U",
                "listener.name.sasl_ssl.ssl.keystore.key": second.key_pem(),
                "listener.name.sasl_ssl.ssl.keystore.certificate.chain": second.chain_pem,
                "listener.name.sasl_ssl.ssl.keystore.location": "",
            }
            changed = settings.with_dynamic({}, good)
            tls.check(changed)
            assert ssl_listener.context().verify_mode is ssl.CERT_NONE  # validated only
            tls.set_settings(changed)
            await tls.check_for_changes()
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
def test_security_keys_are_recognized(name: str, expected: bool) -> None:
    assert is_security_key(name) is expected
