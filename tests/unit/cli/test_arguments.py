"""Command lines of ottla's own tools."""

from __future__ import annotations

import argparse

import pytest

from ottla.cli.arguments import (
    BOOTSTRAP,
    Argument,
    Command,
    OneOf,
    Parser,
    bootstrap_of,
    not_negative,
    parse_pairs,
    positive,
)
from ottla.cli.terminal import UsageError


def parser() -> Parser:
    return Parser(
        prog="tool",
        examples="tool one",
        shared=(BOOTSTRAP,),
        commands=(
            Command("create", "create it", print, Argument("--partitions", type=positive)),
            Command(
                "check",
                "needs no broker",
                print,
                OneOf(Argument("--old", action="store_true"), Argument("--new", action="store_true"), is_required=True),
                has_shared=False,
                defaults={"kind": "local"},
            ),
        ),
    )


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["creat"], "(did you mean create?)"),
        (["create", "--partitons", "3"], "(did you mean --partitions?)"),
        (["create", "--partitions", "0"], "0 is out of range: it must be at least 1"),
        (["create", "--partitions", "x"], "'x' is not a whole number"),
        (["create", "--part", "3"], "unrecognized arguments"),
    ],
)
def test_mistakes_end_with_code_2_and_a_suggestion(
    arguments: list[str], words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as caught:
        parser().parse_args(arguments)
    assert caught.value.code == 2
    text = capsys.readouterr().err
    assert text.startswith("usage: tool")
    assert words in text


def test_a_command_has_its_own_arguments_and_the_shared_ones(capsys: pytest.CaptureFixture[str]) -> None:
    options = parser().parse_args(["create", "--partitions", "3", "--bootstrap-server", "a:1"])
    assert (options.partitions, options.bootstrap_server, options.action) == (3, "a:1", print)
    assert parser().parse_args(["check", "--old"]).kind == "local"
    for wrong in (["check"], ["check", "--old", "--new"], ["check", "--old", "--bootstrap-server", "a:1"], []):
        with pytest.raises(SystemExit):
            parser().parse_args(wrong)
    assert "one of the arguments --old --new is required" in capsys.readouterr().err


def test_the_bootstrap_server_is_accepted_before_and_after_a_command(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OTTLA_BOOTSTRAP_SERVER", raising=False)
    for arguments in (["--bootstrap-server", "a:1", "create"], ["create", "--bootstrap-server", "a:1"]):
        assert bootstrap_of(parser().parse_args(arguments)) == "a:1"
    assert bootstrap_of(argparse.Namespace()) == "127.0.0.1:9092"
    monkeypatch.setenv("OTTLA_BOOTSTRAP_SERVER", "b:2")
    assert bootstrap_of(argparse.Namespace()) == "b:2"


def test_zero_is_not_negative() -> None:
    assert not_negative("0") == 0
    with pytest.raises(argparse.ArgumentTypeError):
        not_negative("-1")


def test_pairs_keep_everything_after_the_first_equals_sign() -> None:
    assert parse_pairs(["a=b=c", "d", "e="]) == {"a": "b=c", "d": "", "e": ""}
    with pytest.raises(UsageError, match="'d' is not of the form key=value"):
        parse_pairs(["d"], allow_bare=False)
    with pytest.raises(UsageError):
        parse_pairs(["=x"])


def test_help_is_as_wide_as_the_screen(monkeypatch: pytest.MonkeyPatch) -> None:
    made = Parser(prog="tool")
    made.add_argument("--long", help="word " * 60)
    widths = []
    for columns in ("60", "100", "nonsense"):
        monkeypatch.setenv("COLUMNS", columns)
        widths.append(max(map(len, made.format_help().splitlines())))
    assert 50 < widths[0] <= 58 < 90 < widths[1] <= 98
    assert 70 < widths[2] <= 78
