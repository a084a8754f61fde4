"""Common behaviour of all tools: exit codes, output streams and escaping for terminals.

Rules:
1. Data goes to stdout; warnings, progress and errors go to stderr. Kafka's scripts follow Kafka where it differs.
2. A tool ends with an exit code and at most one line of explanation, never with a traceback.
3. Names (groups, members, clients, principals, settings) and broker messages are printed with control characters
   escaped, in a pipe as well: otherwise a newline in a group name could fake a line of output. `print_line` and
   `print_table` do that.
4. Records are escaped only on a terminal, where they could repaint the screen or type commands. A pipe receives their
   bytes unchanged.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable
from io import BytesIO
from typing import BinaryIO, TextIO

from ottla.base.text import escape, escape_line
from ottla.client.errors import ClientError
from ottla.operations.errors import OperationError, WrongInputError

EXIT_FAILED = 1
EXIT_USAGE = 2
EXIT_DRIFT = 3  # the cluster differs from the file
EXIT_INTERRUPTED = 130  # as a shell reports SIGINT
EXIT_PIPE_CLOSED = 141  # as a shell reports SIGPIPE
EXIT_TERMINATED = 143  # as a shell reports SIGTERM


class ToolError(OperationError):
    """The reason why a tool cannot continue: one line with the cause and the remedy."""

    def __init__(self, message: str, code: int = EXIT_FAILED) -> None:
        super().__init__(message)
        self.code = code


class UsageError(ToolError, WrongInputError):
    """Invalid or contradictory options."""

    def __init__(self, message: str) -> None:
        super().__init__(message, EXIT_USAGE)


def run_tool(name: str, body: Callable[[], int]) -> int:
    """Run a tool and convert every outcome into an exit code."""
    if sys.stdout is None:  # the process was started with stdout closed
        sys.stdout = open(os.devnull, "w")  # noqa: SIM115 (stays open to the end)
    try:
        code = body()
        sys.stdout.flush()
    except KeyboardInterrupt:
        return EXIT_INTERRUPTED
    except BrokenPipeError:
        _discard_stdout()
        return EXIT_PIPE_CLOSED
    except OperationError as problem:
        return fail(name, str(problem), exit_code(problem))
    except ClientError as problem:
        return fail(name, escape_line(str(problem)))
    except OSError as problem:
        prefix = f"{problem.filename}: " if problem.filename else ""
        return fail(name, f"{prefix}{problem.strerror or problem}")
    except UnicodeError:
        return fail(name, "the text is not valid UTF-8")
    except MemoryError:
        return fail(name, "out of memory")
    return code


def drift_code(*, differs: bool, is_impossible: bool) -> int:
    """The exit code of a dry run.

    An impossible change outweighs a difference: a job that treats exit code 3 as "there are changes" must not accept
    it.
    """
    if is_impossible:
        return EXIT_FAILED
    return EXIT_DRIFT if differs else 0


def exit_code(problem: OperationError) -> int:
    if isinstance(problem, ToolError):
        return problem.code
    return EXIT_USAGE if isinstance(problem, WrongInputError) else EXIT_FAILED


def exit_on_sigterm() -> None:
    """Convert SIGTERM into SystemExit, so that cleanup code runs."""

    def stop(_number: int, _frame: object) -> None:
        raise SystemExit(EXIT_TERMINATED)

    signal.signal(signal.SIGTERM, stop)


def fail(name: str, message: str, code: int = EXIT_FAILED) -> int:
    """Print the reason of a failure on stderr; returns the exit code."""
    warn(f"{name}: {message}")
    return code


def warn(line: str) -> None:
    """Print one line on stderr."""
    if sys.stderr is not None:
        print(escape(line), file=sys.stderr, flush=True)


def stdin_bytes() -> BinaryIO:
    """Standard input as bytes; empty if the process has no stdin."""
    return sys.stdin.buffer if sys.stdin is not None else BytesIO()


def is_terminal(stream: TextIO | None) -> bool:
    return stream is not None and not stream.closed and stream.isatty()


def printable(text: str, stream: TextIO | None = None) -> str:
    """The text, escaped if the stream (default: stdout) is a terminal."""
    return escape(text) if is_terminal(sys.stdout if stream is None else stream) else text


def escape_bytes(data: bytes) -> bytes:
    """Escape untrusted bytes for a terminal: valid UTF-8 without control characters."""
    return escape(data.decode("utf-8", "backslashreplace")).encode()


def print_line(line: str) -> None:
    """Print one line that contains untrusted names."""
    print(escape_line(line))


def print_text(text: str) -> None:
    """Print a text of several lines, such as a schema."""
    print(escape(text))


def confirm(question: str) -> bool:
    """Ask for confirmation; every answer except yes means no."""
    print(f"{question} [y/N] ", end="", flush=True)
    return sys.stdin.readline().strip().lower() in ("y", "yes")


def confirm_unless_scripted(question: str, refusal: str) -> bool:
    """Ask for confirmation on a terminal and print the refusal if the answer is no; in a script, the answer is yes."""
    if not (is_terminal(sys.stdin) and is_terminal(sys.stdout)) or confirm(question):
        return True
    print(refusal)
    return False


def _discard_stdout() -> None:
    """Redirect stdout to /dev/null, so that the interpreter does not report a failed flush at exit."""
    null = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, 1)
    os.close(null)
