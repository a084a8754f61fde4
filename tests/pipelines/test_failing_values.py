"""`on_error: fail`: a value with which an expression fails ends the run; the message names the record and the fix."""

from __future__ import annotations

import re

import pytest
from tests.pipelines.commands import Command, command  # noqa: F401 (a fixture)
from tests.pipelines.running import produce, read_all
from tests.pipelines.test_sql_command import Prompt, prompt  # noqa: F401 (a fixture)

FILE = """\
name: {name}
bootstrap.servers: {bootstrap}
on_error: fail
from: {topic: "{name}-in"}
steps:
  - parse: {format: json, schema: {id: long, n: string}}
"""
END = 'to: {topic: "{name}-out"}\n'
CODE = "def strict(rows):\n    return rows.assign(n=[str(int(n)) for n in rows.n])\n"
STEPS = {
    "derive": "{v: cast(n as int)}",
    "filter": "cast(n as int) > 0",
    "rule": "{positive: cast(n as int) > 0}",
    "select": "{columns: {v: 100 / cast(n as int)}}",
    "sql": "SELECT id, cast(n as int) AS v FROM stream",
    "window": "{total: true, by: [id], aggregates: {v: sum(cast(n as int))}}",
    "python": "{function: 'own:strict', each: batch}",
}


@pytest.mark.parametrize("step", STEPS)
def test_the_record_with_a_value_that_cannot_be_cast_is_named(command: Command, step: str) -> None:  # noqa: F811
    topic = fill(command)
    (command.folder / "own.py").write_text(CODE)
    command.write(f"{FILE}  - filter: id >= 0\n  - {step}: {STEPS[step]}\noutput: update\n{END}")
    told = command.refused()
    assert f"(stream main, step 3 ({step}), topic {topic}, partition 1, offset 7); change the expression" in told
    assert "'abc'" in told


def test_a_run_goes_on_as_its_message_says(command: Command) -> None:  # noqa: F811
    fill(command)
    command.write(f"{FILE}  - derive: {{v: cast(n as int)}}\n{END}")
    told = re.search(r"`(filter: .*?)`", command.refused())
    assert told is not None
    assert command.run().code == 1  # as often as it is run
    command.write(f"{FILE.replace('steps:', f'steps:{chr(10)}  - {told[1]}')}  - derive: {{v: cast(n as int)}}\n{END}")
    done = command.run()
    assert (done.code, done.steps["main filter"]["filtered"]) == (0, 1)
    assert len(read_all(command.bootstrap, f"{command.name}-out")) == 69


def test_a_batch_of_later_records_is_searched_alone(command: Command) -> None:  # noqa: F811
    topic = command.make_topic()
    command.write(f"{FILE}  - derive: {{v: cast(n as int)}}\n{END}")
    produce(command.bootstrap, topic, [{"id": n, "n": "1"} for n in range(10)])
    assert command.run().code == 0
    produce(command.bootstrap, topic, [{"id": n, "n": "x" if n in (13, 15) else "1"} for n in range(10, 20)])
    assert f"topic {topic}, partition 0, offset 13)" in command.refused()


def test_a_run_over_the_whole_history_names_the_record(command: Command) -> None:  # noqa: F811
    topic = fill(command)
    command.write(f"{FILE}  - derive: {{v: cast(n as int)}}\n{END}")
    assert f"step 2 (derive), topic {topic}, partition 1, offset 7)" in command.refused("--from", "beginning")


def test_records_that_fail_together_are_named_as_far_as_it_is_known(command: Command) -> None:  # noqa: F811
    """No single record is to blame for a sum that its type does not hold."""
    topic = command.make_topic()
    produce(command.bootstrap, topic, [{"id": 1, "n": "9223372036854775807"} for _ in range(4)])
    step = "window: {total: true, by: [id], aggregates: {v: sum(cast(n as bigint))}}"
    command.write(f"{FILE}  - {step}\noutput: update\n{END}")
    assert f"(stream main, topic {topic}, partition 0, offsets 0 to 3)" in command.refused()


def test_a_prompt_names_the_record(prompt: Prompt) -> None:  # noqa: F811
    prompt.write("orders", [{"id": n, "n": "abc" if n == 3 else "1"} for n in range(6)], partitions=1)
    place = f"topic {prompt.topic('orders')}, partition 0, offset 3)"
    assert place in prompt.refused("SELECT cast(n as int) AS v FROM orders$", code=1)
    done = prompt.run("SELECT cast(n as int) AS v FROM orders$ EMIT CHANGES", "--from", "earliest")
    assert (done.code, place in done.errors[0]) == (1, True), done


def fill(command: Command) -> str:  # noqa: F811
    topic = command.make_topic(2)
    produce(command.bootstrap, topic, [{"id": n, "n": str(n + 1)} for n in range(50)], partition=0)
    produce(command.bootstrap, topic, [{"id": n, "n": "abc" if n == 7 else "1"} for n in range(20)], partition=1)
    return topic
