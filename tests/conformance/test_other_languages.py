"""Clients that need node or go: `pytest -m other_languages` (a bare machine has neither)."""

import json
import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.other_languages

HERE = Path(__file__).parent
RUN_SECONDS_MAX = 300


def run(command: list[str], folder: Path) -> str:
    assert shutil.which(command[0]), f"{command[0]} is not installed"
    done = subprocess.run(
        command, cwd=folder, capture_output=True, text=True, timeout=RUN_SECONDS_MAX, check=False, env=dict(os.environ)
    )
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    return done.stdout


@pytest.fixture
def workshop(tmp_path: Path, request: pytest.FixtureRequest) -> Path:
    """A copy of the sources: what npm and go download does not belong into the project."""
    return Path(shutil.copytree(HERE / request.param, tmp_path / request.param))


@pytest.mark.parametrize("workshop", ["kafkajs"], indirect=True)
def test_kafkajs(workshop: Path, bootstrap: str, topic_name: str) -> None:
    run(["npm", "install", "--no-audit", "--no-fund", "--silent"], workshop)
    seen: dict[str, Any] = json.loads(run(["node", "round_trip.js", bootstrap, topic_name], workshop))
    assert seen == {
        "created": True,
        "createdAgain": False,
        "sent": [[0, 0, "0"], [1, 0, "0"]],
        "packed": "25",
        "offsets": [[0, "0", "26"], [1, "0", "25"]],
        "later": [[0, "26"], [1, "25"]],
        "partitions": 2,
        "brokers": [[1, bootstrap]],
        "controller": 1,
        "retention": ["777777"],
        "listed": True,
    }


@pytest.mark.parametrize("workshop", ["kafkajs"], indirect=True)
def test_kafkajs_in_groups_and_transactions(workshop: Path, bootstrap: str, topic_name: str) -> None:
    run(["npm", "install", "--no-audit", "--no-fund", "--silent"], workshop)
    assert json.loads(run(["node", "groups.js", bootstrap, topic_name], workshop)) == {
        "read": 100,
        "copied": 100,
        "aborted": True,
        "committed": 100,
        "readers": [[0, "50"], [1, "50"]],
        "copiers": [[0, "50"], [1, "50"]],
        "state": "Empty",
        "listed": True,
        "reset": "7",
    }


@pytest.mark.parametrize("workshop", ["franz_go"], indirect=True)
def test_franz_go(workshop: Path, bootstrap: str, topic_name: str) -> None:
    run(["go", "mod", "tidy"], workshop)
    seen: dict[str, Any] = json.loads(run(["go", "run", ".", bootstrap, topic_name], workshop))
    already_there = seen.pop("created again")
    assert already_there.startswith("TOPIC_ALREADY_EXISTS")
    assert seen == {
        "consumed": 300,
        "ordered": True,
        "end": 100,
        "brokers": 1,
        "partitions": 3,
        "retention": "777777",
        "group range": 300,
        "lag range": 0,
        "group cooperative": 300,
        "lag cooperative": 0,
        "copied": 300,
        "aborted unseen": True,
    }


@pytest.mark.parametrize("workshop", ["sarama"], indirect=True)
def test_sarama(workshop: Path, bootstrap: str, topic_name: str) -> None:
    run(["go", "mod", "tidy"], workshop)
    assert json.loads(run(["go", "run", ".", bootstrap, topic_name], workshop)) == {
        "read": 300,
        "copied": 300,
        "committed": 300,
        "readers": [100, 100, 100],
        "copiers": [100, 100, 100],
    }
