"""Steps: frozen dataclasses of the user's fields, and their effect on a frame.

    @dataclass(frozen=True, kw_only=True)
    class Drop:
        \"\"\"Remove columns.\"\"\"                          # the first line is its help

        columns: list[str] = field(metadata={"doc": "columns to remove"})
        KIND: ClassVar[Kind] = "marks"

        def apply(self, frame: Frame) -> Frame: ...

KIND defines how rows are counted:
  marks     keeps every row and marks some (`frame.keep`, `frame.kill`)
  merges    is stateful or creates new rows (the runner settles the frame before it; end with `frame.merged`)
  thins     is stateful and drops rows (settled before; the difference counts as filtered)
  opaque    runs unknown code (settled before)
  asks      marks rows by external answers, which may change (settled before; call `frame.with_source_record`)
A step that reads another stream names it in `with_stream`. ORDER_MATTERS describes how the result depends on the order
of arrival, if it does. `row_order` returns the effect on the order of rows, for sinks that overwrite by key
(model/row_order.py); without it the order counts as lost. Steps import PySpark at the top and must not use the driver's
JVM (Spark Connect).
"""

from __future__ import annotations

from typing import ClassVar, Literal, Protocol

from ottla.pipelines.steps.frame import Frame

StepKind = Literal["marks", "merges", "thins", "opaque", "asks"]


class Step(Protocol):
    KIND: ClassVar[StepKind]

    def apply(self, frame: Frame) -> Frame: ...


class StepError(Exception):
    """A step does not fit its input rows; the text has the reason, `cure` the fix."""

    def __init__(self, cause: str, cure: str = "", field: str = "") -> None:
        self.cause = cause
        self.cure = cure
        self.field = field
        super().__init__(f"{cause}{'; ' if cure else ''}{cure}")
