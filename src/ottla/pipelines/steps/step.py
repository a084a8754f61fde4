"""What a step is: a frozen dataclass of what the user wrote, and what it does to a frame.

    @dataclass(frozen=True, kw_only=True)
    class Drop:
        \"\"\"Leave columns out.\"\"\"                        # the first line is its help

        columns: list[str] = field(metadata={"doc": "columns to leave out"})
        KIND: ClassVar[Kind] = "marks"

        def apply(self, frame: Frame) -> Frame: ...

KIND says how rows are accounted for: "marks" keeps every row and marks some (`frame.keep`, `frame.kill`); "merges" is
stateful or makes new rows of many (the runner settles the frame before it; end with `frame.merged`); "thins" is
stateful and lets rows through as they are or not at all (settled before; the difference counts as filtered); "opaque"
runs code that we do not know (settled before, too); "asks" marks rows by what others answer, who may answer otherwise
the next time (settled before; call `frame.with_letters`). A step that reads another stream names it in `with_stream`.
ORDER_MATTERS is the sentence that tells on what order of arrival the result depends, if it does.
`row_order` tells what becomes of the order of rows, for sinks that overwrite by key (model/row_order.py); where it is
missing, what is not certain is taken for lost.
A step imports what it needs of Spark at the top; nothing it does may need the driver's JVM (Spark Connect).
"""

from __future__ import annotations

from typing import ClassVar, Literal, Protocol

from ottla.pipelines.steps.frame import Frame

Kind = Literal["marks", "merges", "thins", "opaque", "asks"]


class Step(Protocol):
    KIND: ClassVar[Kind]

    def apply(self, frame: Frame) -> Frame: ...


class StepError(Exception):
    """A step that does not fit the rows it would get: the text says why, `cure` what to do."""

    def __init__(self, cause: str, cure: str = "", field: str = "") -> None:
        self.cause = cause
        self.cure = cure
        self.field = field
        super().__init__(f"{cause}{'; ' if cure else ''}{cure}")
