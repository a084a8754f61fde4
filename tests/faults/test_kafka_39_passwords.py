"""Passwords in ZooKeeper that Apache Kafka 3.9 encrypted are read here, and ours there."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest
from tests.conformance.conftest import find_jars
from tests.faults.zookeeper_kafka import KAFKA_VERSION

from ottla.base.password_encoder import CIPHERS, Encoding, decode_password, encode_password

pytestmark = [pytest.mark.faults, pytest.mark.needs_ottla]

SOURCE = Path(__file__).with_name("kafka_39_encoder.java")
SECRET = "the secret, as it is"
PASSWORDS = ("geheim", 'user_alice="a b, c:d";', "with an é")


@pytest.mark.parametrize("cipher", CIPHERS)
@pytest.mark.parametrize("bits", [128, 256])
def test_each_reads_what_the_other_encrypted(cipher: str, bits: int) -> None:
    ours = [encode_password(password, SECRET, Encoding(cipher=cipher, key_bits=bits)) for password in PASSWORDS]
    lines = [*(f"E {password}" for password in PASSWORDS), *(f"D {text}" for text in ours)]
    done = subprocess.run(
        ["java", "-cp", f"{find_jars(KAFKA_VERSION)}/*", str(SOURCE), SECRET, cipher, str(bits)],
        input="".join(f"{line}\n" for line in lines),
        capture_output=True,
        encoding="utf-8",
        check=True,
        timeout=120,
        env={**os.environ, "LC_ALL": "C.UTF-8"},
    )
    answers = done.stdout.splitlines()
    assert answers[len(PASSWORDS) :] == list(PASSWORDS)
    assert [decode_password(text, SECRET) for text in answers[: len(PASSWORDS)]] == list(PASSWORDS)
