"""`mask`: hide what nobody downstream needs to know.

hash: 64 hexadecimal digits of SHA-256 over salt and value: equal values stay equal, so they can be counted and joined.
last N: stars, and the last N characters. redact: a fixed text. null: nothing.
The salt is what keeps hashes from being undone by guessing. It stands in Spark's plans: who sees those knows it.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import ClassVar

from pyspark.sql import Column
from pyspark.sql import functions as F  # noqa: N812 (everybody's name for it)

from ottla.pipelines.model.row_order import RowOrder
from ottla.pipelines.steps.columns import need_columns
from ottla.pipelines.steps.frame import Frame
from ottla.pipelines.steps.parsing.reader import quoted
from ottla.pipelines.steps.step import Kind, StepError

LAST = re.compile(r"last[ _-]?(\d{1,3})")
SALT_CHARACTERS_MIN = 8


@dataclass(frozen=True, kw_only=True)
class Mask:
    """Hide the values of columns."""

    columns: dict[str, str] = field(metadata={"doc": "column: hash, last N, redact, null"})
    salt: str | None = field(default=None, metadata={"doc": "secret for hash"})
    salt_env: str | None = field(default=None, metadata={"doc": "environment variable that holds it: better"})
    text: str = field(default="***", metadata={"doc": "what redact writes"})
    KIND: ClassVar[Kind] = "marks"

    def problems(self) -> Iterator[tuple[str, str, str]]:
        for name, how in self.columns.items():
            if how not in ("hash", "redact", "null") and not LAST.fullmatch(how):
                yield "columns", f"{name}: {how!r} is no way to hide something", "hash, last 4, redact, null"
        if "hash" in self.columns.values() and bool(self.salt) == bool(self.salt_env):
            yield "salt", "a hash needs one salt: without it people try all values", "give salt_env or salt"
        if self.salt is not None and len(self.salt) < SALT_CHARACTERS_MIN:
            yield "salt", f"a salt has at least {SALT_CHARACTERS_MIN} characters", ""

    def apply(self, frame: Frame) -> Frame:
        need_columns(frame, self.columns)
        salt = self._salt() if "hash" in self.columns.values() else ""
        return frame.with_columns(
            {name: self._masked(F.col(quoted(name)), how, salt) for name, how in self.columns.items()}
        )

    def row_order(self, before: RowOrder) -> RowOrder:
        return before.without(name for name, how in self.columns.items() if how != "hash")

    def _masked(self, value: Column, how: str, salt: str) -> Column:
        text = value.cast("string")
        last = LAST.fullmatch(how)
        if last:
            count = int(last[1])
            shown = (
                F.when(F.length(text) > count, F.substring(text, -count, count)).otherwise("") if count else F.lit("")
            )
            return F.when(text.isNotNull(), F.concat(F.lit("*" * 8), shown))
        if how == "hash":
            return F.sha2(F.concat(F.lit(salt), text), 256)
        return F.when(text.isNotNull(), F.lit(self.text)) if how == "redact" else F.lit(None).cast("string")

    def _salt(self) -> str:
        if self.salt is not None:
            return self.salt
        found = os.environ.get(self.salt_env or "", "")
        if len(found) < SALT_CHARACTERS_MIN:
            cure = f"put at least {SALT_CHARACTERS_MIN} characters into it"
            raise StepError(f"the environment variable {self.salt_env} holds no salt", cure, "salt_env")
        return found
