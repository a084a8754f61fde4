"""What the benchmark reads out of the broker's log."""

from bench.ottla_process import READY_LINE, read_callback_at_shutdown, read_loop_lines


def test_the_longest_callback_is_read_from_lines_of_json_among_others() -> None:
    log = 'starting\n{"longest_callback_ms": 1.5, "slow": 0}\nINFO {"longest_callback_ms": 12, "most_running_ms": 3}\n'
    log += '{"longest_callback_ms": \n'  # half a line
    assert read_loop_lines(log) == [{"longest_callback_ms": 1.5}, {"longest_callback_ms": 12.0, "most_running_ms": 3.0}]


def test_the_line_at_shutdown_counts_last() -> None:
    assert read_callback_at_shutdown("longest loop callback: 2.0 ms\nINFO longest loop callback: 12.3 ms\n") == 12.3
    assert read_callback_at_shutdown("nothing") is None


def test_the_ready_line_is_recognised_at_the_start_of_a_line() -> None:
    assert READY_LINE.search("INFO loading\nottla broker 1 ready on 127.0.0.1:9092\n")
    assert not READY_LINE.search("INFO ottla broker 1 ready on 127.0.0.1:9092")
