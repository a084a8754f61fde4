"""JAAS texts, as Java and Kafka read them, and what is wrong with others."""

from __future__ import annotations

from pathlib import Path

import pytest

from ottla.security.jaas import (
    AppConfigurationEntry,
    JaasError,
    ServerJaasConfig,
    client_module,
    configured_file,
    parse_sections,
    parse_value,
    read_sections,
)

PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule"
SCRAM = "org.apache.kafka.common.security.scram.ScramLoginModule"

FILE = """
/* brokers */
KafkaServer {
    org.apache.kafka.common.security.plain.PlainLoginModule required // who may log in
        username="admin"
        password="admin-secret123"
        user_admin="admin-secret123"
        user_alice='it\\'s; {hers}';
};
internal.KafkaServer { org.apache.kafka.common.security.scram.ScramLoginModule REQUIRED username=broker; };
KafkaClient {
  com.sun.security.auth.module.Krb5LoginModule required useKeyTab=true storeKey=true
     keyTab="user.keytab" principal="alice@REALM";
};
Client {
  org.apache.zookeeper.server.auth.DigestLoginModule required username="k" password="";
};
"""


def test_a_file_has_sections_with_modules_and_options() -> None:
    found = parse_sections(FILE)
    assert list(found) == ["KafkaServer", "internal.KafkaServer", "KafkaClient", "Client"]
    options = {"username": "admin", "password": "admin-secret123", "user_admin": "admin-secret123"}
    assert found["KafkaServer"] == (AppConfigurationEntry(PLAIN, "required", options | {"user_alice": "it's; {hers}"}),)
    assert found["internal.KafkaServer"] == (AppConfigurationEntry(SCRAM, "required", {"username": "broker"}),)
    assert found["KafkaClient"][0].short_name == "Krb5LoginModule"
    assert found["KafkaClient"][0].is_true("useKeyTab")
    assert not found["KafkaClient"][0].is_true("useTicketCache")
    assert found["Client"][0].options["password"] == ""


def test_a_value_is_one_module_and_ends_with_a_semicolon() -> None:
    assert parse_value(f'{PLAIN} required username="a" password="b\\"\\\\\\n\\101";') == AppConfigurationEntry(
        PLAIN, "required", {"username": "a", "password": 'b"\\\nA'}
    )


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "Login module not specified in JAAS config"),
        (PLAIN, "line 1: the text ends where required, requisite, sufficient or optional"),
        (f'{PLAIN} needed user_a="geheim";', f"line 1: what follows {PLAIN} is not one of required"),
        (f'{PLAIN} required user_a="geheim"', "line 1: the text ends where ; is expected"),
        (f'{PLAIN} required\nuser_a "geheim";', "line 2: expected = after the name of an option"),
        (f"{PLAIN} required password=das geheim;", "line 1: expected = after the name of an option"),
        (f"{PLAIN} required\n\npassword=1geheim;", "line 3: the value of password begins with a digit or a sign"),
        (f"{PLAIN} required keyTab=/etc/geheim;", "line 1: the value of keyTab begins with a digit or a sign"),
        (f"{PLAIN} required password=;", "line 1: expected the value of password"),
        (f'{PLAIN} required password="geheim;\n"', 'line 1: a text that begins with " is not closed'),
        (f"{PLAIN} required /* geheim", "line 1: a comment that begins with /* is not closed"),
        (f'{PLAIN} required a="geheim"; {PLAIN} required;', "line 1: JAAS config property contains more than one"),
    ],
)
def test_a_damaged_value_is_reported_without_its_secrets(text: str, said: str) -> None:
    with pytest.raises(JaasError) as caught:
        parse_value(text)
    assert str(caught.value).startswith(said)
    assert "geheim" not in str(caught.value)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("KafkaServer", "line 1: the text ends where { after KafkaServer is expected"),
        ("KafkaServer {\n};", "line 1: section KafkaServer has no login module"),
        ("KafkaServer {\n\n a required;\n}", "line 4: the text ends where ; after the } of KafkaServer is expected"),
        ("A { a required; };\nA { b required; };", "line 2: there are two sections A"),
        ("{ };", "line 1: expected the name of a section"),
    ],
)
def test_a_damaged_file_is_reported_with_its_line(text: str, said: str, tmp_path: Path) -> None:
    path = tmp_path / "jaas.conf"
    path.write_text(text)
    with pytest.raises(JaasError) as caught:
        read_sections(str(path))
    assert str(caught.value) == f"{path}, {said}"


def test_files_that_are_none(tmp_path: Path) -> None:
    with pytest.raises(JaasError, match=r"cannot read .*/gone: no such file"):
        read_sections(str(tmp_path / "gone"))
    (tmp_path / "binary").write_bytes(b"\n\xff\xfe")
    with pytest.raises(JaasError, match="line 2: this is not UTF-8 text"):
        read_sections(str(tmp_path / "binary"))


@pytest.mark.parametrize(
    ("text", "path"),
    [
        ("", None),
        ("-Xmx1g -Djava.security.auth.login.config=/etc/jaas.conf -Da=b", "/etc/jaas.conf"),
        ("'-Djava.security.auth.login.config=/with space/jaas.conf'", "/with space/jaas.conf"),
        ("-Djava.security.auth.login.config=a -Djava.security.auth.login.config=b", "b"),
    ],
)
def test_the_file_is_named_as_for_java(text: str, path: str | None) -> None:
    assert configured_file({"KAFKA_OPTS": text}) == path


def test_a_listener_s_own_setting_wins_then_its_own_section() -> None:
    key = "listener.name.internal.scram-sha-512.sasl.jaas.config"
    logins = ServerJaasConfig({key: f"{SCRAM} required username=own;"}, "jaas.conf", parse_sections(FILE))
    assert logins.module_of("INTERNAL", "SCRAM-SHA-512").options == {"username": "own"}
    assert logins.module_of("INTERNAL", "SCRAM-SHA-256").options == {"username": "broker"}
    assert logins.module_of("EXTERNAL", "PLAIN").options["username"] == "admin"
    with pytest.raises(JaasError, match=r"Could not find a 'KafkaServer' or 'a\.KafkaServer' entry .*jaas\.config"):
        ServerJaasConfig({}, None, {}).module_of("A", "PLAIN")
    with pytest.raises(JaasError, match=r"listener\.name\.internal\.scram-sha-512\.sasl\.jaas\.config: line 1"):
        ServerJaasConfig({key: "x"}, None, {}).module_of("INTERNAL", "SCRAM-SHA-512")


def test_one_section_may_hold_the_modules_of_several_mechanisms() -> None:
    sections = parse_sections(f"KafkaServer {{ {PLAIN} required user_a=b; {SCRAM} required username=c; }};")
    logins = ServerJaasConfig({}, "jaas.conf", sections)
    assert logins.module_of("A", "PLAIN").name == PLAIN
    assert logins.module_of("A", "SCRAM-SHA-256").name == SCRAM


def test_a_client_s_own_property_wins_over_the_file() -> None:
    sections = parse_sections(FILE)
    own = client_module({"sasl.jaas.config": f"{PLAIN} required username=u password=p;"}, "PLAIN", sections)
    assert own is not None
    assert own.options == {"username": "u", "password": "p"}
    from_file = client_module({}, "GSSAPI", sections)
    assert from_file is not None
    assert from_file.options["principal"] == "alice@REALM"
    assert client_module({}, "PLAIN", {}) is None


def test_a_module_never_shows_its_options() -> None:
    assert "geheim" not in repr(parse_value(f'{PLAIN} required password="geheim";'))


JNDI, LDAP = "com.sun.security.auth.module.JndiLoginModule", "com.sun.security.auth.module.LdapLoginModule"
UNKNOWN = "com.example.NoSuchModule"
KEY = "listener.name.sasl_plaintext.plain.sasl.jaas.config"


@pytest.mark.parametrize("module", [JNDI, LDAP, UNKNOWN, "PlainLoginModule", "geheim"])
def test_a_login_module_that_kafka_refuses_was_accepted(module: str) -> None:
    value = f'{module} required user_admin="geheim";'
    second = f"{PLAIN} required user_a=b; {value}"
    for call in (
        lambda: ServerJaasConfig({KEY: value}, None, {}).module_of("SASL_PLAINTEXT", "PLAIN"),
        lambda: ServerJaasConfig({}, "jaas.conf", parse_sections(f"KafkaServer {{ {second} }};")).module_of(
            "X", "PLAIN"
        ),
        lambda: client_module({"sasl.jaas.config": value}, "PLAIN", {}),
        lambda: client_module({}, "PLAIN", parse_sections(f"KafkaClient {{ {second} }};")),
    ):
        with pytest.raises(JaasError) as caught:
            call()
        assert "geheim" not in str(caught.value)
        word = "is not allowed" if module in (JNDI, LDAP) else "No LoginModule found for"
        assert word in str(caught.value)
        assert module in str(caught.value) or "." not in module


def test_java_properties_restrict_the_login_modules() -> None:
    def refusal(module: str, **java: str) -> str:
        properties = {f"org.apache.kafka.{name}.login.modules": text for name, text in java.items()}
        logins = ServerJaasConfig({KEY: f"{module} required user_a=b;"}, None, {}, properties)
        try:
            logins.module_of("SASL_PLAINTEXT", "PLAIN")
        except JaasError as problem:
            return str(problem)
        return ""

    assert "is not allowed" in refusal(PLAIN, allowed=f"{SCRAM}, x.Y")
    assert refusal(PLAIN, allowed=f"{SCRAM}, {PLAIN}") == ""
    assert refusal(PLAIN, disallowed="") == ""
    assert "is not allowed" in refusal(PLAIN, disallowed=f"x.Y,{PLAIN}")
    assert "No LoginModule found" in refusal(JNDI, disallowed="")
    assert refusal(PLAIN, allowed=PLAIN, disallowed=PLAIN) == ""
