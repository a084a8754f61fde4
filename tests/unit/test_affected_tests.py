"""`make test-fast` and `make pure`: the tests that tools/affected_tests.py chooses."""

from __future__ import annotations

import pytest
from tools import affected_tests


def test_the_tests_of_a_changed_module_come_first_and_those_of_other_packages_do_not() -> None:
    files = affected_tests.affected_by(["src/ottla/pipelines/sinks/record_sender.py"])
    assert "tests/unit/pipelines/sinks/test_record_sender.py" in files[:3]
    assert not [file for file in files if file.startswith("tests/unit/storage/")]


def test_a_change_is_followed_over_several_imports_and_helpers() -> None:
    found = affected_tests.distances(
        ["ottla.c"],
        {
            "tests.unit.test_a": frozenset({"tests.helper"}),
            "tests.helper": frozenset({"ottla.b"}),
            "ottla.b": frozenset({"ottla.c"}),
            "tests.unit.test_other": frozenset({"ottla.d"}),
        },
    )
    assert found == {"ottla.c": 0, "ottla.b": 1, "tests.helper": 2, "tests.unit.test_a": 3}


@pytest.mark.parametrize(
    ("changed", "chosen"),
    [
        ("tests/conformance/test_fetch.py", "tests/conformance/test_fetch.py"),  # of any folder
        ("tests/dialogues/topics.py", "tests/dialogues/test_dialogues.py"),
        ("pyproject.toml", "tests/unit"),
        ("src/ottla/no_more.py", "tests/unit/test_docs.py"),  # deleted: imports of it fail in all other checks
    ],
)
def test_what_else_is_chosen(changed: str, chosen: str) -> None:
    assert chosen in affected_tests.affected_by([changed])


def test_pure_runs_the_tests_of_compiled_files_of_every_package() -> None:
    files = affected_tests.tests_of_compiled_modules()
    packages = {file.split("/")[2] for file in files}
    assert {"broker", "coordination", "groups", "network", "protocol", "replication", "storage"} <= packages
    assert "tests/unit/broker/test_offload.py" in files  # `make unit` leaves these two to `make pure`
    assert "tests/unit/broker/test_delayed_produce.py" in files
