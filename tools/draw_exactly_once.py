"""Draws docs/images/exactly-once.svg: `python tools/draw_exactly_once.py > docs/images/exactly-once.svg`."""

from xml.sax.saxutils import escape

WIDTH, ROW_HEIGHT, TOP = 860, 92, 74
STEP_WIDTH, STEP_HEIGHT, FIRST_X, GAP = 132, 40, 190, 30
INK, FAINT, LOSS, REPEAT, GOOD = "#1f2937", "#6b7280", "#b91c1c", "#b45309", "#15803d"

ROWS = (
    ("at most once", ("read", "commit position", "write result"), 2, "crash here: the message is lost", LOSS),
    (
        "at least once",
        ("read", "write result", "commit position"),
        2,
        "crash here: the result is written twice",
        REPEAT,
    ),
    ("exactly once", ("read", "result + position"), None, "one transaction: both or neither, no gap to crash in", GOOD),
)


def main() -> None:
    height = TOP + ROW_HEIGHT * len(ROWS) + 6
    print(f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" font-family="sans-serif">')
    print(f'<rect width="{WIDTH}" height="{height}" fill="#ffffff"/>')
    print(text(24, 36, "Where a crash can happen, and what it does", INK, 18, "bold"))
    for number, row in enumerate(ROWS):
        draw_row(TOP + number * ROW_HEIGHT, *row)
    print("</svg>")


def draw_row(y: int, name: str, steps: tuple[str, ...], crash_before: int | None, note: str, color: str) -> None:
    print(text(24, y + 26, name, INK, 15, "bold"))
    x = FIRST_X
    for number, step in enumerate(steps):
        width = STEP_WIDTH if crash_before is not None or number == 0 else 2 * STEP_WIDTH + GAP
        if number:
            is_gap = number == crash_before
            draw_arrow(x - GAP, y + STEP_HEIGHT // 2, color if is_gap else FAINT, is_gap)
        edge = color if crash_before is None and number else FAINT
        print(
            f'<rect x="{x}" y="{y}" width="{width}" height="{STEP_HEIGHT}" rx="6" fill="#f9fafb" stroke="{edge}" '
            f'stroke-width="{2 if edge != FAINT else 1}"/>'
        )
        print(text(x + width // 2, y + 25, step, INK, 13, anchor="middle"))
        x += width + GAP
    print(text(FIRST_X, y + 62, note, color, 13))


def draw_arrow(x: int, y: int, color: str, is_gap: bool) -> None:
    print(f'<path d="M{x + 3} {y}h{GAP - 10}m-5 -4l5 4l-5 4" fill="none" stroke="{color}" stroke-width="1.5"/>')
    if is_gap:  # a flash
        print(f'<path d="M{x + GAP // 2 + 3} {y - 30}l-8 12h6l-4 11l10 -14h-6l4 -9z" fill="{color}"/>')


def text(x: int, y: int, words: str, color: str, size: int, weight: str = "normal", anchor: str = "start") -> str:
    return (
        f'<text x="{x}" y="{y}" fill="{color}" font-size="{size}" font-weight="{weight}" '
        f'text-anchor="{anchor}">{escape(words)}</text>'
    )


if __name__ == "__main__":
    main()
