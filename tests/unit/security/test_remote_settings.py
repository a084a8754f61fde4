"""What may be set over the wire: nothing that reads other files, runs other programs or loads other classes."""

import pytest

from ottla.base.broker_settings import BrokerSettings
from ottla.security.remote_settings import ALLOWED_PATHS, dynamic_config_problem

LISTENER = "listener.name.clients."
PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule required"
KRB5 = "com.sun.security.auth.module.Krb5LoginModule required"
SETTINGS = BrokerSettings({ALLOWED_PATHS: "/etc/ottla/keys/,/srv", "principal.builder.class": "a.B"})
JAAS = f"{LISTENER}plain.sasl.jaas.config"


@pytest.mark.parametrize(
    ("name", "text"),
    [
        (f"{LISTENER}ssl.keystore.location", "/etc/ottla/keys/broker.pem"),
        (f"{LISTENER}ssl.truststore.location", "/srv/a/../b.pem"),
        (f"{LISTENER}ssl.keystore.location", ""),  # the certificate stands in another setting
        ("sasl.kerberos.kinit.cmd", "/srv/kinit"),
        (f"{LISTENER}gssapi.sasl.jaas.config", f'{KRB5} useKeyTab=true keyTab="/srv/a.keytab" principal="k/h@R";'),
        (JAAS, f'{PLAIN} user_alice="/etc/shadow";'),
        ("principal.builder.class", "a.B"),
        (f"{LISTENER}principal.builder.class", "a.B"),
        ("sasl.kerberos.min.time.before.relogin", "58000"),
        ("log.retention.ms", "1"),
        ("no.such.key", "/etc/passwd"),
    ],
)
def test_what_is_taken(name: str, text: str) -> None:
    assert dynamic_config_problem(SETTINGS, name, text) is None


@pytest.mark.parametrize(
    ("name", "text", "words"),
    [
        (f"{LISTENER}ssl.keystore.location", "/etc/passwd", "allows (/etc/ottla/keys, /srv)"),
        (f"{LISTENER}ssl.keystore.location", "/etc/ottla/keys/../../shadow", ALLOWED_PATHS),
        (f"{LISTENER}ssl.keystore.location", "/srv-of-others/a", ALLOWED_PATHS),
        (f"{LISTENER}ssl.keystore.location", "/srv", ALLOWED_PATHS),
        (f"{LISTENER}ssl.truststore.location", "srv/a.pem", ALLOWED_PATHS),
        ("sasl.kerberos.kinit.cmd", "/bin/sh", ALLOWED_PATHS),
        (f"{LISTENER}gssapi.sasl.jaas.config", f'{KRB5} keyTab="FILE:/etc/krb5.keytab";', ALLOWED_PATHS),
        (f"{LISTENER}gssapi.sasl.jaas.config", f'{KRB5} useTicketCache=true ticketCache="/tmp/x";', ALLOWED_PATHS),
        (JAAS, 'com.sun.security.auth.module.JndiLoginModule required user.provider.url="ldap://x";', "login module"),
        (JAAS, f'{PLAIN} user_alice="secret', "line 1"),
        ("principal.builder.class", "c.D", "Invalid value c.D for configuration principal.builder.class: Class c.D"),
        (f"{LISTENER}ssl.engine.factory.class", "c.D", "There is no JVM"),
    ],
)
def test_what_is_refused_with_a_reason(name: str, text: str, words: str) -> None:
    problem = dynamic_config_problem(SETTINGS, name, text)
    assert problem is not None
    assert words in problem
    assert "secret" not in problem


def test_without_allowed_folders_no_file_is_taken() -> None:
    problem = dynamic_config_problem(BrokerSettings({}), f"{LISTENER}ssl.keystore.location", "/srv/a.pem")
    assert problem is not None
    assert "(none)" in problem
