"""References in values of settings to what stands elsewhere."""

from __future__ import annotations

from pathlib import Path

import pytest

from ottla.base.broker_settings import load_broker_settings
from ottla.base.config_provider import ProviderError, resolve_references
from ottla.base.settings import SettingsError


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "secrets.properties").write_text("password=geheim\nother=x=y\n")
    (tmp_path / "password").write_text("in a file\n")
    return tmp_path


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("plain", "plain"),
        ("${env:USER_PASSWORD}", "from the environment"),
        ("${env::USER_PASSWORD}", "from the environment"),
        ("${file:FOLDER/secrets.properties:password}", "geheim"),
        ("a ${file:FOLDER/secrets.properties:other} b ${env:USER_PASSWORD}", "a x=y b from the environment"),
        ("${file:FOLDER/password}", "in a file"),
        ("${directory:FOLDER:password}", "in a file"),
        ("${vault:path:key}", "${vault:path:key}"),
        ("${kafka.logs.dir}", "${kafka.logs.dir}"),
    ],
)
def test_a_value_is_filled_in(folder: Path, text: str, value: str) -> None:
    assert resolve_references(text.replace("FOLDER", str(folder)), {"USER_PASSWORD": "from the environment"}) == value


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("${env:MISSING}", "there is no variable MISSING"),
        ("${file:/nonexistent:key}", "cannot be read: no such file or directory"),
        ("${file:FOLDER/secrets.properties:nothing}", "there is no nothing in the file"),
        ("${directory:FOLDER:nothing}", "cannot be read"),
    ],
)
def test_an_unresolvable_reference_is_reported_without_a_secret(folder: Path, text: str, told: str) -> None:
    with pytest.raises(ProviderError, match=told) as problem:
        resolve_references(text.replace("FOLDER", str(folder)), {})
    assert "geheim" not in str(problem.value)


def test_a_brokers_settings_refer_to_files_and_variables(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PARTITIONS", "7")
    path = folder / "server.properties"
    path.write_text(f"num.partitions=${{env:PARTITIONS}}\nlog.dirs=${{file:{folder}/password}}\n")
    settings = load_broker_settings(path)
    assert (settings.num_partitions, settings.log_dirs) == (7, ("in a file",))
    monkeypatch.delenv("PARTITIONS")
    with pytest.raises(SettingsError, match=r"server.properties:1: num.partitions: \$\{env:PARTITIONS\}: there is no"):
        load_broker_settings(path)
