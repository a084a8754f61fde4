"""Passwords as they stand in the metadata store: those of Apache Kafka 3.9 are read, and nothing else is a password."""

from __future__ import annotations

import time
from itertools import product
from pathlib import Path

import pytest

from ottla.base.broker_settings import BrokerSettings, load_broker_settings
from ottla.base.password_encoder import (
    CIPHERS,
    HASHES,
    ITERATIONS_MAX,
    KEY_BITS,
    Encoding,
    decode_password,
    encode_password,
    is_encoded,
)
from ottla.base.settings import SettingsError

# Written by the encoder of Apache Kafka 3.9.1: by its defaults, with PBKDF2WithHmacSHA1, and with AES/GCM/NoPadding.
BY_KAFKA = (Path(__file__).parents[2] / "data/kafka_39_passwords.txt").read_text().splitlines()
SECRET = "the secret é"
PASSWORDS = ("geheim", 'pässwörd 😀 with "quotes", and:colons;')
JAAS = "listener.name.clients.plain.sasl.jaas.config"


@pytest.mark.parametrize(("text", "password"), list(zip(BY_KAFKA, PASSWORDS * 3, strict=True)))
def test_what_kafka_wrote_is_read(text: str, password: str) -> None:
    assert is_encoded(text)
    assert decode_password(text, SECRET) == password
    assert decode_password(text, "another secret") is None


@pytest.mark.parametrize(("cipher", "bits", "hash_name"), list(product(CIPHERS, KEY_BITS, HASHES)))
def test_what_is_encrypted_can_be_read_and_is_never_the_same_twice(cipher: str, bits: int, hash_name: str) -> None:
    encoding = Encoding(hash_name, cipher, bits, 1024)
    texts = {encode_password(password, SECRET, encoding) for password in (*PASSWORDS, *PASSWORDS, "", "x" * 5_000)}
    assert len(texts) == 6
    assert {decode_password(text, SECRET) for text in texts} == {*PASSWORDS, "", "x" * 5_000}
    assert all(is_encoded(text) for text in texts)
    assert not any(password in text for text in texts for password in PASSWORDS)


def fields_of(text: str) -> dict[str, str]:
    return dict(part.split(":", 1) for part in text.split(","))  # type: ignore[misc]


@pytest.mark.parametrize(
    "change",
    [
        {"iterations": str(ITERATIONS_MAX + 1)},
        {"iterations": "0"},
        {"iterations": "many"},
        {"keyLength": "64"},
        {"keyLength": "1000000000"},
        {"salt": "not base64!"},
        {"salt": "A" * 1_000_000},
        {"encryptedPassword": "AAAA"},
        {"encryptedPassword": ""},
        {"initializationVector": "AAAA"},
        {"cipherAlgorithm": "DES/CBC/PKCS5Padding"},
        {"keyFactoryAlgorithm": "PBKDF2WithNothing"},
        {"passwordLength": "5"},
    ],
)
@pytest.mark.parametrize("text", [BY_KAFKA[0], BY_KAFKA[4]])
def test_damaged_or_hostile_texts_give_no_password_and_cost_nothing(text: str, change: dict[str, str]) -> None:
    hostile = ",".join(f"{name}:{value}" for name, value in {**fields_of(text), **change}.items())
    began = time.process_time()
    assert decode_password(hostile, SECRET) is None
    assert time.process_time() - began < 0.5


def test_a_password_is_not_taken_for_an_encrypted_one() -> None:
    module = 'org.apache.kafka.common.security.plain.PlainLoginModule required user_a="encryptedPassword:x,salt:y";'
    assert not is_encoded(module)
    assert not is_encoded("")
    assert decode_password(module, SECRET) is None


def test_settings_show_what_is_stored_as_it_was_given() -> None:
    module = 'org.apache.kafka.common.security.plain.PlainLoginModule required user_a="b";'
    stored = {JAAS: encode_password(module, "old", Encoding()), "listener.name.clients.ssl.key.password": "plain"}
    assert BrokerSettings({"password.encoder.secret": "old"}).with_dynamic({}, stored).broker_overrides[JAAS] == module
    both = BrokerSettings({"password.encoder.secret": "new", "password.encoder.old.secret": "old"})
    assert both.with_dynamic({}, stored).broker_overrides == {
        JAAS: module,
        "listener.name.clients.ssl.key.password": "plain",
    }
    for texts in ({}, {"password.encoder.secret": "another"}):
        assert BrokerSettings(texts).with_dynamic({}, stored).broker_overrides == {
            "listener.name.clients.ssl.key.password": "plain"
        }


def test_the_settings_of_the_encoder_are_checked() -> None:
    for name, text in (
        ("key.length", "100"),
        ("iterations", "1023"),
        ("iterations", "2000000"),
        ("cipher.algorithm", "ROT13"),
        ("keyfactory.algorithm", "MD5"),
    ):
        with pytest.raises(SettingsError, match=f"password.encoder.{name}"):
            load_broker_settings(None, {f"password.encoder.{name}": text})
