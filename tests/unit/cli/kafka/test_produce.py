"""kafka-console-producer.sh without a cluster."""

from __future__ import annotations

import io

import pytest

from ottla.cli.java.options import KafkaOptions
from ottla.cli.kafka.produce import OPTIONS, option_properties, run
from ottla.cli.records.console_producer import parse_lines
from ottla.cli.records.line_reader import LineReader
from ottla.cli.terminal import ToolError

SERVER = "--bootstrap-server 127.0.0.1:1 --topic t "


def test_options_become_properties_of_the_producer() -> None:
    line = (
        "--timeout 10 --batch-size 100 --max-memory-bytes 2048 --message-send-max-retries 2 --retry-backoff-ms 5 "
        "--request-required-acks 1 --request-timeout-ms 9 --metadata-expiry-ms 8 --socket-buffer-size 7 "
        "--compression-codec"
    )
    assert option_properties(KafkaOptions("tool", "", OPTIONS, line.split())) == {
        "linger.ms": "10",
        "batch.size": "100",
        "buffer.memory": "2048",
        "retries": "2",
        "retry.backoff.ms": "5",
        "acks": "1",
        "request.timeout.ms": "9",
        "metadata.max.age.ms": "8",
        "send.buffer.bytes": "7",
        "compression.type": "gzip",
    }


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("--line-reader foo", "unknown line reader foo"),
        ("--reader-property parse.headers=true --reader-property headers.separator=:", "may not be equal"),
        ("--max-block-ms x", "Cannot parse argument 'x' of option max-block-ms"),
    ],
)
def test_bad_values_are_one_line(line: str, words: str) -> None:
    with pytest.raises(ToolError, match=words):
        run((SERVER + line).split())


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("--bootstrap-server a:1", 'Missing required argument "[topic]"'),
        ("--topic t", 'Missing required argument "[bootstrap-server]"'),
        (
            SERVER + "--property a=b --reader-property c=d",
            "Options --reader-property and --property cannot be specified together.",
        ),
    ],
)
def test_bad_command_lines_are_refused(line: str, words: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        run(line.split())
    assert caught.value.code == 1
    assert capsys.readouterr().err.splitlines()[0] == words


def test_a_terminal_shows_a_prompt_for_each_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert len(list(parse_lines(LineReader({}), io.BytesIO(b"a\nb\n"), True))) == 2
    assert capsys.readouterr().out == ">>>"
    assert len(list(parse_lines(LineReader({}), io.BytesIO(b"a\n"), False))) == 1
    assert capsys.readouterr().out == ""
