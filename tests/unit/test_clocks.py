"""Tests without their own process must not use the real clock: on a busy machine they would fail sometimes.

Async code runs in virtual time (`tests/virtual_time.py`), where sleeps and timeouts cost nothing and always end in the
same order. The exceptions use threads, or the times of files; they wait for the event that they need.
"""

import ast
from pathlib import Path

TESTS = Path(__file__).parents[1]
FOLDERS = ["unit", "dialogues", "fuzz"]
REAL_CLOCKS = {
    "asyncio.run": "virtual_time.run",
    "asyncio.new_event_loop": "virtual_time.run",
    "asyncio.Runner": "virtual_time.run",
    "asyncio.SelectorEventLoop": "virtual_time.run with a poller",
    "SystemClock": "virtual_time.LoopClock, or a stopped clock",
    "time.sleep": "asyncio.sleep in virtual time",
    "time.monotonic": "loop.time()",
    "time.monotonic_ns": "loop.time()",
    "time.perf_counter": "time.process_time",
    "time.time": "a fixed time",
    "time.time_ns": "a fixed time",
}
ALLOWED = {
    "unit/bench/test_controller.py": {"asyncio.run"},  # the program measures real time
    "unit/broker/test_group_topics.py": {"asyncio.run"},  # counts the tasks of an executor
    "unit/broker/test_metadata_publisher.py": {"asyncio.run"},  # checks which thread uses the disk
    "unit/broker/whole_broker.py": {"asyncio.Runner"},  # a virtual loop of its own kind
    "unit/controller/test_zookeeper_client.py": {"asyncio.run"},  # a thread of the library calls the loop
    "unit/network/test_receiver_thread.py": {
        "asyncio.SelectorEventLoop",
        "asyncio.new_event_loop",
    },  # a thread calls the loop
    "unit/pipelines/spark/test_class_archive.py": {"time.time"},  # the age of files
    "unit/registry/test_several_nodes.py": {"asyncio.run"},  # a socket that a thread waits for
    "unit/testing/test_links.py": {"time.sleep", "time.monotonic"},  # sockets and threads
}
LIMIT_SECONDS_MIN = 10  # for threads and other processes, which may stall on a busy machine


def test_a_test_without_a_process_does_not_use_the_real_clock() -> None:
    found: list[str] = []
    for folder in FOLDERS:
        for file in sorted((TESTS / folder).rglob("*.py")):
            path = str(file.relative_to(TESTS))
            found += [f"{path}: {problem}" for problem in problems(file.read_text(), ALLOWED.get(path, set()))]
    assert found == []


def test_every_exception_is_used() -> None:
    unused = [path for path, names in ALLOWED.items() if names - set(calls((TESTS / path).read_text()))]
    assert unused == []


def test_a_use_of_the_real_clock_is_found() -> None:
    assert problems("import time\nstarted = time.monotonic()\n", set()) == ["time.monotonic: use loop.time()"]
    assert problems("asyncio.run(main())", set()) == ["asyncio.run: use virtual_time.run"]
    assert problems("asyncio.run(main())", {"asyncio.run"}) == []
    assert problems("child.wait(timeout=3)", set()) == ["child.wait: a limit of 3 s is too short for a busy machine"]


def problems(text: str, allowed: set[str]) -> list[str]:
    found = [f"{name}: use {REAL_CLOCKS[name]}" for name in calls(text) if name in REAL_CLOCKS.keys() - allowed]
    return found + [
        f"{ast.unparse(node.func)}: a limit of {limit} s is too short for a busy machine"
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.Call)
        for limit in limits(node)
        if limit < LIMIT_SECONDS_MIN
    ]


def calls(text: str) -> list[str]:
    return [ast.unparse(node.func) for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Call)]


def limits(call: ast.Call) -> list[float]:
    """Numbers that say how long a real process is waited for; asyncio's are virtual."""
    if ast.unparse(call.func).startswith("asyncio."):
        return []
    values = [each.value for each in call.keywords if each.arg == "timeout"]
    if isinstance(call.func, ast.Attribute) and call.func.attr in ("settimeout", "join", "wait", "result"):
        values += call.args
    return [value.value for value in values if isinstance(value, ast.Constant) and isinstance(value.value, int | float)]
