"""How ZooKeeper is reached: what settings, the JAAS file and Java's properties make of it."""

import ssl
from pathlib import Path

import pytest
from tests.certificates import PASSWORD, Authority

from ottla.base.broker_keys.zookeeper import ZooKeeperKeys
from ottla.controller.stores.zookeeper.access_rights import SECURE_ROOTS, rights_of
from ottla.security.jaas import java_properties
from ottla.security.zookeeper import (
    ZooKeeperClientSecurity,
    ZooKeeperSecurityError,
    broker_security,
    java_client_properties,
    tool_security,
)

CLIENT = """
KafkaServer { org.apache.kafka.common.security.plain.PlainLoginModule required username="x" password="y"; };
Client { org.apache.zookeeper.server.auth.DigestLoginModule required username="kafka" password="zoo"; };
"""
TLS = "zookeeper.ssl.client.enable"


def options(folder: Path, text: str = CLIENT, more: str = "") -> dict[str, str]:
    file = folder / "jaas.conf"
    file.write_text(text)
    return {"KAFKA_OPTS": f"-Xmx1g -Djava.security.auth.login.config={file} {more}"}


def of_broker(environment: dict[str, str], **texts: str) -> ZooKeeperClientSecurity:
    return broker_security(ZooKeeperKeys({name.replace("_", "."): text for name, text in texts.items()}), environment)


def test_the_last_of_several_properties_counts_and_kafka_opts_before_others() -> None:
    environment = {"KAFKA_OPTS": '-Da=1 -Da=2 -Dx="y z" -Xmx1g', "JAVA_TOOL_OPTIONS": "-Da=0 -Db=3"}
    assert java_properties(environment) == {"a": "2", "b": "3", "x": "y z"}
    assert java_properties({"KAFKA_OPTS": "-Da=it's -Db"}) == {"a": "it's", "b": ""}


def test_the_section_client_is_the_login(tmp_path: Path) -> None:
    found = of_broker(options(tmp_path))
    assert found.can_authenticate
    assert found.make_login is not None
    assert b'username="kafka"' in found.make_login("zoo1").step(b'nonce="n",charset=utf-8')
    assert found.context() is None
    assert "zoo" not in repr(found).replace("ZooKeeper", "")


def test_without_a_file_or_a_section_there_is_no_login(tmp_path: Path) -> None:
    assert not of_broker({}).can_authenticate
    assert not of_broker(options(tmp_path, CLIENT.replace("Client", "Other"))).can_authenticate
    other = options(tmp_path, CLIENT.replace("Client", "Other"), "-Dzookeeper.sasl.clientconfig=Other")
    assert of_broker(other).can_authenticate


def test_tools_that_log_in_make_nodes_of_their_own(tmp_path: Path) -> None:
    assert tool_security(options(tmp_path)).sets_acls
    assert not tool_security({}).sets_acls
    assert of_broker(options(tmp_path), zookeeper_set_acl="true").sets_acls
    assert not of_broker(options(tmp_path)).sets_acls


@pytest.mark.parametrize(
    ("text", "more", "texts", "problem"),
    [
        (CLIENT.replace('password="zoo"', ""), "", {}, "needs a username and a password"),
        (CLIENT.replace("DigestLoginModule", "OtherLoginModule"), "", {}, "OtherLoginModule is not served"),
        ("Client {", "", {}, "jaas.conf, line 1"),
        (CLIENT, "-Dzookeeper.sasl.client=false", {}, "zookeeper.sasl.client=false"),
        ("Other { a required; };", "", {"zookeeper.set.acl": "true"}, "this broker has no identity"),
        (
            CLIENT,
            "",
            {TLS: "true", "zookeeper.ssl.crl.enable": "true"},
            r"zookeeper\.ssl\.crl\.enable=true is not supported",
        ),
        (CLIENT, "", {TLS: "true", "zookeeper.ssl.ocsp.enable": "true"}, r"ocsp\.enable=true is not supported"),
        (CLIENT, "", {TLS: "true", "zookeeper.ssl.keystore.location": "/no"}, "TLS to ZooKeeper .*cannot read /no"),
        (CLIENT, "", {TLS: "true", "zookeeper.ssl.protocol": "TLSv1"}, "TLSv1 is not safe"),
        (CLIENT, "", {TLS: "true", "zookeeper.ssl.cipher.suites": "NONE"}, "NONE"),
    ],
)
def test_what_cannot_be_had_stops_the_start(
    tmp_path: Path, text: str, more: str, texts: dict[str, str], problem: str
) -> None:
    with pytest.raises(ZooKeeperSecurityError, match=problem) as raised:
        broker_security(ZooKeeperKeys(texts), options(tmp_path, text, more))
    assert "\n" not in str(raised.value)
    assert "zoo" not in str(raised.value).lower().replace("zookeeper", "")


def test_tls_checks_the_host_unless_the_check_is_off(tmp_path: Path) -> None:
    trusted = Authority().certificate_pem(tmp_path / "ca.pem")
    texts = {"zookeeper_ssl_client_enable": "true", "zookeeper_ssl_truststore_location": trusted}
    context = of_broker({}, **texts).context()
    assert context is not None
    assert (context.check_hostname, context.verify_mode) == (True, ssl.CERT_REQUIRED)
    assert len(context.get_ca_certs()) == 1
    assert (context.minimum_version, context.maximum_version) == (ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3)
    texts |= {"zookeeper_ssl_endpoint_identification_algorithm": "", "zookeeper_ssl_enabled_protocols": "TLSv1.3"}
    context = of_broker({}, **texts).context()
    assert context is not None
    assert (context.check_hostname, context.verify_mode) == (False, ssl.CERT_REQUIRED)
    assert context.minimum_version == ssl.TLSVersion.TLSv1_3


def test_a_key_store_is_an_identity_and_its_password_that_of_the_key(tmp_path: Path) -> None:
    authority = Authority()
    store = authority.issue("broker").pkcs12(tmp_path / "broker.p12")
    texts = {
        "zookeeper_ssl_client_enable": "true",
        "zookeeper_ssl_keystore_location": store,
        "zookeeper_ssl_keystore_password": PASSWORD,
        "zookeeper_set_acl": "true",
    }
    assert of_broker({}, **texts).can_authenticate
    with pytest.raises(ZooKeeperSecurityError, match="password is wrong"):
        of_broker({}, **{**texts, "zookeeper_ssl_keystore_password": "other"})
    pem = authority.issue("broker").pem(tmp_path / "broker.pem", "key secret")
    encrypted = {"zookeeper_ssl_keystore_location": pem, "zookeeper_ssl_keystore_password": "key secret"}
    assert of_broker({}, **{**texts, **encrypted}).can_authenticate


def test_java_properties_stand_for_settings_and_settings_win(tmp_path: Path) -> None:
    trusted = Authority().certificate_pem(tmp_path / "ca.pem")
    words = f"-Dzookeeper.client.secure=true -Dzookeeper.ssl.trustStore.location={trusted}"
    assert tool_security({"KAFKA_OPTS": words}).context() is not None
    unchecked = tool_security({"KAFKA_OPTS": f"{words} -Dzookeeper.ssl.hostnameVerification=false"}).context()
    assert unchecked is not None
    assert not unchecked.check_hostname
    assert of_broker({"KAFKA_OPTS": words}, zookeeper_ssl_client_enable="false").context() is None
    file = tmp_path / "tls.properties"
    file.write_text(f"{TLS}=true\nzookeeper.ssl.truststore.location={trusted}\nother.key=1\n")
    assert tool_security({}, str(file)).context() is not None
    assert java_client_properties(str(file)) == {
        "zookeeper.client.secure": "true",
        "zookeeper.clientCnxnSocket": "org.apache.zookeeper.ClientCnxnSocketNetty",
        "zookeeper.ssl.trustStore.location": trusted,
    }
    with pytest.raises(ZooKeeperSecurityError, match="cannot be read: no such file"):
        tool_security({}, "/no/such/file")


def test_new_connections_use_files_as_they_are_now(tmp_path: Path) -> None:
    trusted = Authority().certificate_pem(tmp_path / "ca.pem")
    found = of_broker({}, zookeeper_ssl_client_enable="true", zookeeper_ssl_truststore_location=trusted)
    first = found.context()
    assert found.context() is first
    (tmp_path / "ca.pem").write_text("half written")
    assert found.context() is first, "a file that is no use changes nothing"
    Authority("A new one").certificate_pem(tmp_path / "ca.pem")
    assert found.context() is not first


def shown(path: str, *, is_secure: bool = True) -> list[tuple[int, str, str]]:
    return [(right.perms, right.id.scheme, right.id.id) for right in rights_of(path, is_secure=is_secure)]


def test_rights_are_kafkas() -> None:
    creator, reader, world = (31, "auth", ""), (1, "world", "anyone"), (31, "world", "anyone")
    for path in ("/", "/brokers/ids/1", "/config", "/config/topics/t", "/kafka-acl", "/controller"):
        assert shown(path) == [creator, reader]
    for path in ("/config/users", "/config/users/alice", "/config/brokers/1", "/delegation_token/tokens/t"):
        assert shown(path) == [creator], "secrets"
    assert shown("/consumers") == [world], "consumers from before 0.9 write there"
    assert all(shown(path, is_secure=False) == [world] for path in (*SECURE_ROOTS, "/config/users/alice"))
