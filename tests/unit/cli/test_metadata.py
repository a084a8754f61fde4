"""Read-only access to a metadata store, beside its broker and without one, and SCRAM users of `format --add-scram`."""

from __future__ import annotations

import base64
import os
from pathlib import Path

import pytest

from ottla.cli.commands import metadata
from ottla.cli.commands.metadata import checked_path
from ottla.cli.java.options import OptionError
from ottla.cli.metadata.first_users import parse_users, write_users
from ottla.cli.terminal import ToolError
from ottla.controller.image_loader import load_image
from ottla.controller.stores.sqlite_tree import SqliteTree
from ottla.controller.stores.store import CreateNode
from ottla.security.scram_credentials import make_credential, parse_credential, salted_password


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    tree = opened(tmp_path)
    tree.multi([CreateNode("/brokers"), CreateNode("/brokers/ids"), CreateNode("/brokers/ids/1", b'{"port":9092}')])
    tree.close()
    return tmp_path


def opened(folder: Path) -> SqliteTree:
    tree = SqliteTree(str(folder / "ottla.metadata.db"))
    tree.open()
    return tree


def shown(capsys: pytest.CaptureFixture[str], folder: Path, *words: str) -> str:
    assert metadata.run([*words, "--data", str(folder)]) == 0
    return capsys.readouterr().out


def test_nodes_are_listed_and_shown(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert shown(capsys, folder, "ls", "/brokers") == "[ids]\n"
    assert shown(capsys, folder, "get", "/brokers/ids/1") == '{"port":9092}\n'
    assert shown(capsys, folder, "tree", "/") == '/\n  brokers\n    ids\n      1  {"port":9092}\n'
    assert "dataVersion = 0\ndataLength = 13\nnumChildren = 0\n" in shown(capsys, folder, "get", "-s", "/brokers/ids/1")
    assert sorted(os.listdir(folder)) == ["ottla.metadata.db", "ottla.metadata.reserve"]


def test_a_running_broker_is_no_obstacle(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    writer = opened(folder)
    writer.multi([CreateNode("/new", b"n")])
    assert shown(capsys, folder, "get", "/new") == "n\n"
    writer.multi([CreateNode("/newer", b"m")])
    assert shown(capsys, folder, "get", "/newer") == "m\n"
    writer.close()


def test_the_folder_of_ottla_up_is_known(folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "broker").mkdir()
    (folder / "ottla.metadata.db").rename(tmp_path / "broker" / "ottla.metadata.db")
    assert shown(capsys, tmp_path, "ls") == "[brokers]\n"


def test_a_missing_node_is_reported(folder: Path, tmp_path: Path) -> None:
    with pytest.raises(ToolError, match="Node does not exist: /nope"):
        metadata.run(["get", "/nope", "--data", str(folder)])
    with pytest.raises(ToolError, match=r"has no ottla\.metadata\.db"):
        metadata.run(["ls", "--data", str(tmp_path / "nowhere")])
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "ottla.metadata.db").write_bytes(b"garbage" * 100)
    with pytest.raises(ToolError, match="cannot be used as metadata store"):
        metadata.run(["ls", "--data", str(tmp_path / "other")])


def test_paths_are_checked() -> None:
    assert checked_path("/") == checked_path("") == "/"
    assert checked_path("brokers/ids/") == "/brokers/ids"
    for text in ("/a//b", "/a/../b"):
        with pytest.raises(ToolError, match="is not a path"):
            checked_path(text)


def test_a_password_becomes_a_credential() -> None:
    users = parse_users(
        ["SCRAM-SHA-256=[name=alice,password=a=b]", 'SCRAM-SHA-512=[name="alice",password="c,d",iterations=8192]']
    )
    assert list(users["alice"]) == ["SCRAM-SHA-256", "SCRAM-SHA-512"]
    for mechanism, password in (("SCRAM-SHA-256", b"a=b"), ("SCRAM-SHA-512", b"c,d")):
        found = parse_credential(mechanism, users["alice"][mechanism])
        assert found == make_credential(mechanism, password, found.salt, found.iterations)


def test_a_salted_password_is_stored_unchanged() -> None:
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
        ("SCRAM-SHA-256=[name=a,color=red,password=geheim]", "add-scram accepts name, password"),
        ("SCRAM-SHA-256=[name=a,name=b,password=geheim]", "add-scram accepts name, password"),
    ],
)
def test_errors_contain_no_password(text: str, said: str) -> None:
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
