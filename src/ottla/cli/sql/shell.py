"""The prompt of `ottla sql`: lines with history and completion, statements that end with a semicolon.

Ctrl-C discards the input or ends the running query, never the shell; Ctrl-D and QUIT end it. The history is in the
state folder.
"""

from __future__ import annotations

import os
import readline
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from ottla.cli.sql.problems import StatementError
from ottla.cli.sql.session import Session
from ottla.client.errors import ClientError
from ottla.pipelines.source.data_loss import SourceError
from ottla.pipelines.sql.completion import candidates
from ottla.pipelines.sql.statements import Part, split

PROMPT = "ottla> "
MORE = "   ... "
ENDS = ("quit", "exit", "help")  # need no semicolon
HISTORY_LINES = 1000
DELIMITERS = " \t\n()[]{},;=<>+*/%!|'\""
WELCOME = "SQL over topics. Statements end with ; (HELP; lists them), Ctrl-D ends."

Tell = Callable[[StatementError, str, Part], None]


class Shell:
    def __init__(self, session: Session, tell: Tell) -> None:
        self.session = session
        self.tell = tell
        self.history = Path(session.state.parent, "sql_history")
        self.found: list[str] = []  # candidates of the current completion

    def __repr__(self) -> str:
        return f"<Shell of {self.session!r}>"

    def run(self) -> None:
        self._open()
        print(WELCOME)
        try:
            while not self.session.is_ended:
                try:
                    text = self._read()
                except EOFError:
                    print()
                    return
                except KeyboardInterrupt:
                    print()
                    continue
                self._run(text)
        finally:
            self._save()

    def _read(self) -> str:
        """Read lines up to a semicolon."""
        text = ""
        while True:
            entered = input(MORE if text else PROMPT)
            text += f"{entered}\n"
            parts, rest = split(text)
            if not parts and text.strip().lower() in ENDS:
                return text
            if not rest.text.strip():
                return text

    def _run(self, text: str) -> None:
        parts, rest = split(text)
        for part in [*parts, *([rest] if rest.text.strip() else [])]:
            try:
                self.session.run(part.text)
            except StatementError as problem:
                self.tell(problem, text, part)
                return
            except KeyboardInterrupt:
                print("\nended")
                return
            if self.session.is_ended:
                return

    # readline

    def _open(self) -> None:
        with suppress(OSError):
            readline.read_history_file(self.history)
        readline.set_history_length(HISTORY_LINES)
        readline.set_completer_delims(DELIMITERS)
        readline.set_completer(self._complete)
        readline.parse_and_bind("tab: complete")

    def _save(self) -> None:
        """Write the history readable only by its owner: queries may contain private data."""
        with suppress(OSError):
            self.history.parent.mkdir(parents=True, exist_ok=True)
            os.close(os.open(self.history, os.O_WRONLY | os.O_CREAT, 0o600))
            readline.write_history_file(self.history)

    def _complete(self, text: str, number: int) -> str | None:
        if number == 0:
            line = readline.get_line_buffer()
            self.found = candidates(line[: readline.get_begidx()], text, self._tables(), self._columns())
        return self.found[number] if number < len(self.found) else None

    def _tables(self) -> list[str]:
        try:
            return sorted(self.session.catalog.names().values())
        except (ClientError, SourceError):
            return []

    def _columns(self) -> list[str]:
        """Complete known table names only: pressing a key must not read a topic."""
        catalog = self.session.catalog
        known = {**catalog.declared, **catalog.sampled}
        return sorted({name for table in known.values() for name in table.columns})
