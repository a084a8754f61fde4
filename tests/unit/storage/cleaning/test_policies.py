"""Custom clean-up policies: entry points of installed packages, called for each record, never trusted."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.unit.storage.clean_stand import NOW_MS, clean, contents, job_for, new_log, put

from ottla.base.broker_settings import BrokerSettings
from ottla.base.errors import KafkaError
from ottla.base.topic_keys import topic_settings, validate_topic_overrides
from ottla.base.topic_settings import custom_policy_names
from ottla.storage.cleaning.policies import PolicyError, load_policies
from ottla.storage.log import Log

MODULE = """
def newest_three(record, log):
    return record.offset >= log.end_offset - 3

def breaks(record, log):
    raise ZeroDivisionError("on purpose")

word = "not a function"
"""
ENTRY_POINTS = """
[ottla.cleanup_policies]
newest-three = my_policies:newest_three
breaks = my_policies:breaks
no-function = my_policies:word
not-there = my_policies:missing
"""


def install(folder: Path) -> None:
    """What pip leaves behind, as far as Python looks at it."""
    (folder / "my_policies.py").write_text(MODULE)
    metadata = folder / "my_policies-1.0.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: my-policies\nVersion: 1.0\n")
    (metadata / "entry_points.txt").write_text(ENTRY_POINTS)


@pytest.fixture(autouse=True)
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    (tmp_path / "site").mkdir()
    install(tmp_path / "site")
    monkeypatch.syspath_prepend(str(tmp_path / "site"))
    custom_policy_names.cache_clear()
    yield
    custom_policy_names.cache_clear()


@pytest.fixture
def log(tmp_path: Path) -> Log:
    log = new_log(tmp_path / "log")
    for number in range(6):
        put(log, (b"k", b"%d" % number))
    log.roll(NOW_MS)
    return log


def test_a_policy_decides_which_records_stay(log: Log) -> None:
    policy = load_policies(job_for(log, policies=["newest-three"]))
    clean(log, rolls=False, is_compacted=False, policy=policy)

    assert contents(log) == [(3, b"k", b"3"), (4, b"k", b"4"), (5, b"k", b"5")]


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("no-function", "not callable"),
        ("not-there", "cannot be loaded"),
        ("unknown", "no installed package offers the clean-up policy unknown"),
    ],
)
def test_an_unusable_policy_is_reported(log: Log, name: str, words: str) -> None:
    with pytest.raises(PolicyError, match=words):
        load_policies(job_for(log, policies=[name]))


def test_a_policy_that_fails_ends_the_round_and_the_log_stays(log: Log) -> None:
    before = contents(log)

    with pytest.raises(PolicyError, match="breaks failed at offset 5: ZeroDivisionError"):
        clean(log, rolls=False, policy=load_policies(job_for(log, policies=["breaks"])))
    assert contents(log) == before


def test_no_policies_is_no_question(log: Log) -> None:
    assert load_policies(job_for(log)) is None


def test_a_topic_may_name_an_installed_policy_beside_kafkas_own() -> None:
    broker = BrokerSettings({})
    overrides = {"cleanup.policy": "compact,newest-three"}
    validate_topic_overrides(broker, overrides)

    settings = topic_settings(broker, overrides)
    assert settings.cleanup_policy == {"compact", "newest-three"}
    assert settings.is_compacted


def test_an_unknown_policy_is_refused_with_kafkas_sentence_and_all_known_names() -> None:
    with pytest.raises(KafkaError) as refused:
        validate_topic_overrides(BrokerSettings({}), {"cleanup.policy": "compact,newest-four"})

    assert refused.value.error.name == "INVALID_CONFIG"
    assert str(refused.value) == (
        "Invalid value newest-four for configuration cleanup.policy: "
        "String must be one of: compact, delete, breaks, newest-three, no-function, not-there"
    )
