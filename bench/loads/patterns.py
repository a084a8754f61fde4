"""Members of groups that subscribe to regular expressions: hostile ones at a fixed rate, and a thousand plain ones."""

import threading
import time
from collections import Counter

from bench import group_wire
from bench.errors import BenchError
from bench.figures import Figures, latency_figures
from bench.hostile_patterns import patterns
from bench.raw_client import Connection, Target

CONNECTIONS = 10
GROUPS = 20
LOADING = (14, 15, 16)  # the coordinator is not there yet
INVALID_REGULAR_EXPRESSION = 128


def hostile(target: Target, per_second: int, seconds: float) -> Figures:
    """The latency of each answer, and the number of rejections; an accepted member stays."""
    prepare_groups(target, [f"hostile-{number}" for number in range(GROUPS)])
    latencies: list[int] = []
    answers: Counter[int] = Counter()
    start = time.perf_counter() + 0.1
    threads = [
        threading.Thread(target=_attack, args=(target, number, per_second, seconds, start, latencies, answers))
        for number in range(CONNECTIONS)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if set(answers) - {0, INVALID_REGULAR_EXPRESSION}:
        raise BenchError(f"heartbeats were answered with {dict(answers)}")
    refused = answers[INVALID_REGULAR_EXPRESSION]
    return latency_figures(latencies) | {"sent": float(len(latencies)), "refused": float(refused)}


def _attack(
    target: Target,
    number: int,
    per_second: int,
    seconds: float,
    start: float,
    latencies: list[int],
    answers: Counter[int],
) -> None:
    """The share of one connection: every tenth pattern at its time, or as soon as the previous one is answered."""
    source = patterns(number)
    with Connection(target) as connection:
        for turn in range(int(per_second * seconds / CONNECTIONS)):
            due = start + (turn * CONNECTIONS + number) / per_second
            time.sleep(max(0.0, due - time.perf_counter()))
            group = f"hostile-{(turn + number) % GROUPS}"
            request = group_wire.pattern_heartbeat_request(group, f"m-{number}-{turn % 50}", next(source))
            began = time.perf_counter_ns()
            answer = connection.call(request)
            latencies.append(time.perf_counter_ns() - began)
            answers[group_wire.read_heartbeat_error(answer)] += 1


def members(target: Target, count: int) -> Figures:
    """So many members join one group, one after the other, each with an expression of its own."""
    prepare_groups(target, ["patterns"])
    requests = [
        group_wire.pattern_heartbeat_request("patterns", f"m-{number}", f"topic-{number:05}.*")
        for number in range(count)
    ]
    with Connection(target) as connection:
        began = time.perf_counter()
        errors = Counter(group_wire.read_heartbeat_error(connection.call(request)) for request in requests)
        seconds = time.perf_counter() - began
    if set(errors) != {0}:
        raise BenchError(f"heartbeats were answered with {dict(errors)}")
    return {"seconds": seconds}


def prepare_groups(target: Target, groups: list[str]) -> None:
    """Wait for their coordinators."""
    with Connection(target) as connection:
        for group in groups:
            connection.call(group_wire.find_coordinator_request(group, group_wire.GROUP))
            request = group_wire.pattern_heartbeat_request(group, "first", "nothing")
            end = time.monotonic() + 30
            while (error := group_wire.read_heartbeat_error(connection.call(request))) in LOADING:
                if time.monotonic() > end:
                    raise BenchError(f"the coordinator of {group} answers {error}")
                time.sleep(0.05)
