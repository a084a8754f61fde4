"""`kafka-storage.sh format --add-scram`: users before the first start, with Kafka's sentences."""

from __future__ import annotations

import base64
from pathlib import Path

import pytest

from ottla.cli.java.options import OptionError
from ottla.cli.metadata.first_users import parse_users, write_users
from ottla.controller.loading import load_image
from ottla.controller.stores.sqlite_tree import SqliteTree
from ottla.security.scram import make_credential, parse_credential, salted_password


def test_a_password_becomes_a_credential() -> None:
    users = parse_users(
        ["SCRAM-SHA-256=[name=alice,password=a=b]", 'SCRAM-SHA-512=[name="alice",password="c,d",iterations=8192]']
    )
    assert list(users["alice"]) == ["SCRAM-SHA-256", "SCRAM-SHA-512"]
    for mechanism, password in (("SCRAM-SHA-256", b"a=b"), ("SCRAM-SHA-512", b"c,d")):
        found = parse_credential(mechanism, users["alice"][mechanism])
        assert found == make_credential(mechanism, password, found.salt, found.iterations)


def test_a_salted_password_is_taken_as_it_is() -> None:
    salted = base64.b64encode(salted_password("SCRAM-SHA-256", b"x", b"salt", 4096)).decode()
    users = parse_users([f"SCRAM-SHA-256=[name=a,salt=c2FsdA==,saltedpassword={salted}]"])
    assert users["a"]["SCRAM-SHA-256"] == make_credential("SCRAM-SHA-256", b"x", b"salt").to_text()


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("nonsense-geheim", "Failed to parse add-scram"),
        ("SCRAM-SHA-1=[name=a,password=geheim]", "The add-scram mechanism SCRAM-SHA-1 is not supported"),
        ("SCRAM-SHA-256=[password=geheim]", "You must supply 'name' to add-scram"),
        ("SCRAM-SHA-256=[name=,password=geheim]", "You must supply 'name' to add-scram"),
        ("SCRAM-SHA-256=[name=a]", "You must supply one of 'password' or 'saltedpassword'"),
        ("SCRAM-SHA-256=[name=a,password=]", "You must supply one of 'password' or 'saltedpassword'"),
        ("SCRAM-SHA-256=[name=a,password=geheim,iterations=4095]", "must be >= 4096"),
        ("SCRAM-SHA-256=[name=a,password=geheim,iterations=99999]", "must be <= 16384"),
        ("SCRAM-SHA-256=[name=a,password=geheim,iterations=x]", "must be >= 4096"),
        ("SCRAM-SHA-256=[name=a,saltedpassword=AAAA]", "You must supply 'salt' with 'saltedpassword'"),
        ("SCRAM-SHA-256=[name=a,salt=AAAA,saltedpassword=AAAA,password=geheim]", "You must only supply one of"),
        ("SCRAM-SHA-256=[name=a,salt=!,password=geheim]", "'salt' of add-scram is not base64"),
        ("SCRAM-SHA-256=[name=a,color=red,password=geheim]", "add-scram takes name, password"),
        ("SCRAM-SHA-256=[name=a,name=b,password=geheim]", "add-scram takes name, password"),
    ],
)
def test_what_is_refused_without_telling_a_password(text: str, said: str) -> None:
    with pytest.raises(OptionError) as caught:
        parse_users([text])
    assert said in str(caught.value)
    assert "geheim" not in str(caught.value)


def test_one_user_has_one_password_for_a_mechanism() -> None:
    with pytest.raises(OptionError, match="two passwords"):
        parse_users(["SCRAM-SHA-256=[name=a,password=b]", "SCRAM-SHA-256=[name=a,password=c]"])


def test_users_are_found_by_the_broker_that_starts(tmp_path: Path) -> None:
    users = {"CN=a b": {"SCRAM-SHA-256": "x"}}
    write_users(str(tmp_path / "new"), users)
    tree = SqliteTree(str(tmp_path / "new" / "ottla.metadata.db"))
    tree.open()
    assert load_image(tree.subtree("/")).user_configs == users
    tree.close()
