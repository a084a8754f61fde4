"""Human-readable sizes."""

from __future__ import annotations

STEP = 1024


def size_text(size_bytes: int) -> str:
    """A size in bytes with a binary unit."""
    if size_bytes < 0:
        return "?"
    size = float(size_bytes)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if size < STEP:
            return f"{size:.0f} {unit}" if unit == "B" else f"{size:.1f} {unit}"
        size /= STEP
    return f"{size:.1f} TiB"
