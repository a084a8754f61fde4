"""Properties of the Java client as librdkafka knows them: logins and key stores."""

from __future__ import annotations

import pytest

from ottla.client.java_properties import make_without_unknown, translate

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


def test_what_the_library_does_not_know_is_left_out_and_told() -> None:
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
