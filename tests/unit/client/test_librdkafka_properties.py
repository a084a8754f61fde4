"""Java client properties for librdkafka: logins and key stores."""

from __future__ import annotations

from pathlib import Path

import pytest

from ottla.client.errors import ClientError
from ottla.client.librdkafka_properties import make_without_unknown, translate

LOGIN = "org.apache.kafka.common.security.plain.PlainLoginModule required"


@pytest.mark.parametrize(
    ("options", "name", "password"),
    [
        ('username="ann" password="se cret"', "ann", "se cret"),
        ("password='a=b' username=ann", "ann", "a=b"),
        (r'username="an\"n" password="\\"', 'an"n', "\\"),
    ],
)
def test_a_login_is_read_from_jaas(options: str, name: str, password: str) -> None:
    found = translate({"sasl.mechanism": "PLAIN", "sasl.jaas.config": f"{LOGIN} {options};"})
    assert found == {"sasl.mechanisms": "PLAIN", "sasl.username": name, "sasl.password": password}


def test_invalid_jaas_is_reported() -> None:
    with pytest.raises(ClientError, match="line 1: the text ends") as caught:
        translate({"sasl.jaas.config": f"{LOGIN} password=geheim"})
    assert "geheim" not in str(caught.value)


def test_a_login_is_read_from_the_file_that_java_would_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "jaas.conf"
    path.write_text(f"KafkaClient {{ {LOGIN} username=ann password=secret; }};")
    monkeypatch.setenv("KAFKA_OPTS", f"-Djava.security.auth.login.config={path}")
    found = translate({"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "PLAIN"})
    assert (found["sasl.username"], found["sasl.password"]) == ("ann", "secret")
    assert "sasl.username" not in translate({"security.protocol": "PLAINTEXT"})
    own = {"security.protocol": "SASL_PLAINTEXT", "sasl.username": "bob", "sasl.password": "b"}
    assert translate(own) == own


def test_tokens_are_asked_for_by_librdkafka_itself() -> None:
    module = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule required"
    url = {"sasl.oauthbearer.token.endpoint.url": "https://x/"}
    jaas = {"sasl.mechanism": "OAUTHBEARER", "sasl.jaas.config": f"{module} clientId=me clientSecret=s scope=r;"}
    assert translate({**jaas, **url}) == {
        "sasl.mechanisms": "OAUTHBEARER",
        "sasl.oauthbearer.method": "oidc",
        "sasl.oauthbearer.client.id": "me",
        "sasl.oauthbearer.client.secret": "s",
        "sasl.oauthbearer.scope": "r",
        **url,
    }
    unsecured = {**jaas, "sasl.jaas.config": f"{module} unsecuredLoginStringClaim_sub=dev;"}
    assert translate(unsecured)["sasl.oauthbearer.config"] == "principal=dev"


def test_pem_stores() -> None:
    found = translate(
        {
            "security.protocol": "SSL",
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": "/ca.pem",
            "ssl.keystore.location": "/me.pem",
            "ssl.key.password": "x",
            "ssl.endpoint.identification.algorithm": "",
        }
    )
    assert found == {
        "security.protocol": "SSL",
        "ssl.ca.location": "/ca.pem",
        "ssl.certificate.location": "/me.pem",
        "ssl.key.location": "/me.pem",
        "ssl.key.password": "x",
        "ssl.endpoint.identification.algorithm": "none",
    }


class LibraryError(Exception):
    class Code:
        def __init__(self, text: str) -> None:
            self._text = text

        def str(self) -> str:
            return self._text


def test_unknown_properties_are_left_out_and_reported() -> None:
    def make(settings: dict[str, str]) -> dict[str, str]:
        for name in settings:
            if name != "good":
                raise LibraryError(LibraryError.Code(f'No such configuration property: "{name}"'))
        return settings

    told: list[str] = []
    assert make_without_unknown(make, {"odd": "1", "good": "2"}, LibraryError, told.append) == {"good": "2"}
    assert told == ["odd"]


def test_other_trouble_is_raised() -> None:
    def make(_: dict[str, str]) -> None:
        raise LibraryError(LibraryError.Code("Invalid value"))

    with pytest.raises(LibraryError):
        make_without_unknown(make, {"a": "1"}, LibraryError, print)
