"""One live line on a terminal, one line per measurement elsewhere."""

import sys
import time

from bench.figures import Figures

WIDTH_MAX = 118
SHOWN = {
    "startup_s": "{:.2f} s",
    "mb_per_s": "{:,.0f} MB/s",
    "requests_per_s": "{:,.0f} requests/s",
    "p50_ms": "p50 {:.3f} ms",
    "p99_ms": "p99 {:.3f} ms",
    "cpu_us_per_request": "{:.1f} µs CPU",
    "cpu_s_per_gb": "{:.2f} CPU s/GB",
    "kb_per_partition": "{:.1f} KB a partition",
    "rss_mb": "{:.0f} MB resident",
}


class Progress:
    """Shows the current step, the elapsed time and, once known, the remaining time."""

    def __init__(self, steps: int) -> None:
        self.steps = max(1, steps)
        self.done = 0
        self.place = ""
        self._start = time.monotonic()
        self._is_terminal = sys.stdout.isatty()

    def __repr__(self) -> str:
        return f"<Progress {self.done} of {self.steps} at {self.place}>"

    def enter(self, place: str) -> None:
        self.place = place
        self.say("")

    def leave(self) -> None:
        """One step (a section of one system in one round) is done."""
        self.done += 1

    def say(self, what: str) -> None:
        if self._is_terminal:
            self._write(f"{self._clock()} {self.place} {what}")

    def tell(self, measurement: str, figures: Figures) -> None:
        """Print the figures of a measurement on a permanent line."""
        shown = [form.format(figures[name]) for name, form in SHOWN.items() if name in figures]
        self.note(f"{self._clock()} {self.place} {measurement}: {', '.join(shown) or 'done'}")

    def note(self, line: str) -> None:
        if self._is_terminal:
            self._write("")
        print(line, flush=True)

    def finish(self) -> None:
        if self._is_terminal:
            self._write("")

    def _write(self, line: str) -> None:
        sys.stdout.write("\r\x1b[K" + line[:WIDTH_MAX])
        sys.stdout.flush()

    def _clock(self) -> str:
        elapsed = time.monotonic() - self._start
        left = f", about {elapsed / self.done * (self.steps - self.done) / 60:.0f} min left" if self.done else ""
        return f"[{int(elapsed // 60)}:{int(elapsed % 60):02d}{left}]"
