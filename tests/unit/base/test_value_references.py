"""`${env:...}` and `${file:...}` in values of brokers and of clients."""

from __future__ import annotations

from pathlib import Path

import pytest

from ottla.base.broker_settings import load_broker_settings
from ottla.base.settings import SettingsError
from ottla.base.value_references import BrokenReferenceError, resolve
from ottla.cli.client_settings import load_properties
from ottla.cli.terminal import ToolError


def test_references_are_replaced_wherever_they_stand(tmp_path: Path) -> None:
    secrets = tmp_path / "secrets.properties"
    secrets.write_text("admin=p=w\nother=x\n")
    text = f'user_admin="${{file:{secrets}:admin}}" user_bob="${{env:BOB}}" ${{other:x}} $x'
    assert resolve(text, {"BOB": "b"}) == 'user_admin="p=w" user_bob="b" ${other:x} $x'
    assert resolve(f"${{file:{secrets}}}", {}) == "admin=p=w"


def test_what_is_replaced_is_not_looked_at_again() -> None:
    assert resolve("${env:A}", {"A": "${env:B}", "B": "x"}) == "${env:B}"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("${env:GONE}", "there is no such variable"),
        ("${env:}", "there is no such variable"),
        ("${file:/gone:key}", "no such file"),
        ("${file:/}", "is a directory"),
        ("${file:SECRETS:gone}", "the file has no such key"),
    ],
)
def test_a_reference_to_nothing_is_an_error(text: str, said: str, tmp_path: Path) -> None:
    secrets = tmp_path / "s"
    secrets.write_text("key=geheim\n")
    with pytest.raises(BrokenReferenceError, match=said) as caught:
        resolve(text.replace("SECRETS", str(secrets)), {})
    assert "geheim" not in str(caught.value)


def test_a_broker_and_a_client_read_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTTLA_TEST_VALUE", "7")
    path = tmp_path / "a.properties"
    path.write_text("num.partitions=${env:OTTLA_TEST_VALUE}\n")
    assert load_broker_settings(path).num_partitions == 7
    assert load_properties(str(path)) == {"num.partitions": "7"}
    monkeypatch.delenv("OTTLA_TEST_VALUE")
    with pytest.raises(SettingsError, match=r"a\.properties:1: num\.partitions: .*OTTLA_TEST_VALUE"):
        load_broker_settings(path)
    with pytest.raises(ToolError, match="OTTLA_TEST_VALUE"):
        load_properties(str(path))
