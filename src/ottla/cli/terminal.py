"""What every tool does alike: how it ends, where its lines go, and what a terminal may be shown.

Rules:
1. Data goes to stdout; warnings, progress and errors go to stderr (Kafka's own names follow Kafka where it differs).
2. A tool ends with an exit code and at most one line of explanation, never with a traceback.
3. Text that others wrote (record values, messages of brokers) reaches a terminal only with its control characters
   escaped: they could otherwise repaint the screen or type commands. A pipe gets the bytes as they are.
"""

from __future__ import annotations

import os
import re
import signal
import sys
from collections.abc import Callable
from io import BytesIO
from typing import BinaryIO, TextIO

from ottla.client.errors import ClientError
from ottla.operations.errors import OperationError, WrongInputError

EXIT_FAILED = 1
EXIT_USAGE = 2
EXIT_DRIFT = 3  # a cluster that differs from the file that it was compared with
EXIT_INTERRUPTED = 130  # as a shell reports a death by SIGINT
EXIT_PIPE_CLOSED = 141  # and by SIGPIPE
EXIT_TERMINATED = 143  # and by SIGTERM

# C0 and C1 controls and the characters that reorder or hide text; tab and newline are harmless.
_DANGEROUS = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]")


class ToolError(OperationError):
    """Why a tool cannot go on: one line with the cause and the cure."""

    def __init__(self, message: str, code: int = EXIT_FAILED) -> None:
        super().__init__(message)
        self.code = code


class UsageError(ToolError, WrongInputError):
    """Options that make no sense together."""

    def __init__(self, message: str) -> None:
        super().__init__(message, EXIT_USAGE)


def run_tool(name: str, body: Callable[[], int]) -> int:
    """Run a tool and turn every way in which it can end into an exit code."""
    if sys.stdout is None:  # started with stdout closed
        sys.stdout = open(os.devnull, "w")  # noqa: SIM115 (stays open to the end)
    try:
        code = body()
        sys.stdout.flush()
    except KeyboardInterrupt:
        return EXIT_INTERRUPTED
    except BrokenPipeError:
        _forget_stdout()
        return EXIT_PIPE_CLOSED
    except OperationError as problem:
        return fail(name, str(problem), exit_code(problem))
    except ClientError as problem:
        return fail(name, str(problem))
    except OSError as problem:
        place = f"{problem.filename}: " if problem.filename else ""
        return fail(name, f"{place}{problem.strerror or problem}")
    except UnicodeError:
        return fail(name, "the text is not valid UTF-8")
    except MemoryError:
        return fail(name, "out of memory")
    return code


def drift_code(*, differs: bool, is_impossible: bool) -> int:
    """Of a file that was only compared. What can never be applied counts more: a job that takes 3 for "there are
    changes" must not let it through.
    """
    if is_impossible:
        return EXIT_FAILED
    return EXIT_DRIFT if differs else 0


def exit_code(problem: OperationError) -> int:
    if isinstance(problem, ToolError):
        return problem.code
    return EXIT_USAGE if isinstance(problem, WrongInputError) else EXIT_FAILED


def end_on_sigterm() -> None:
    """Have SIGTERM end this process by an exception, so that what was begun is finished."""

    def stop(_number: int, _frame: object) -> None:
        raise SystemExit(EXIT_TERMINATED)

    signal.signal(signal.SIGTERM, stop)


def fail(name: str, message: str, code: int = EXIT_FAILED) -> int:
    """Say on stderr why a tool stops."""
    warn(f"{name}: {message}")
    return code


def warn(line: str) -> None:
    """One line for the person at the terminal."""
    if sys.stderr is not None:
        print(shown(line, sys.stderr), file=sys.stderr, flush=True)


def stdin_bytes() -> BinaryIO:
    """Standard input; empty if this process was started without one."""
    return sys.stdin.buffer if sys.stdin is not None else BytesIO()


def is_terminal(stream: TextIO | None) -> bool:
    return stream is not None and not stream.closed and stream.isatty()


def shown(text: str, stream: TextIO | None = None) -> str:
    """The text as it may go to this stream (stdout unless told)."""
    return escape(text) if is_terminal(sys.stdout if stream is None else stream) else text


def escape(text: str) -> str:
    """The text with every control character written out, such as \\x1b."""
    return _DANGEROUS.sub(lambda match: match.group().encode("unicode_escape").decode(), text)


def escape_bytes(data: bytes) -> bytes:
    """Bytes of anybody's making, fit for a terminal: valid UTF-8 without control characters."""
    return escape(data.decode("utf-8", "backslashreplace")).encode()


def say(line: str) -> None:
    """One line of output that holds words of others."""
    print(shown(line))


def confirm(question: str) -> bool:
    """Ask a person; anything but yes is no."""
    print(f"{question} [y/N] ", end="", flush=True)
    return sys.stdin.readline().strip().lower() in ("y", "yes")


def _forget_stdout() -> None:
    """Keep the interpreter from complaining at exit that its buffer could not be written."""
    null = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, 1)
    os.close(null)
