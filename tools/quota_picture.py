"""Draws docs/images/quota.svg: the rate of an unlimited producer, second by second, by the broker's own meter.

python tools/quota_picture.py > docs/images/quota.svg
"""

from __future__ import annotations

from ottla.quotas.meter import Meter

RULE = 1_000_000.0  # bytes a second
REQUEST = 64 << 10
SECONDS = 30
LINK = 20_000_000.0  # what the producer would send without a rule
WIDTH, HEIGHT, LEFT, TOP, BOTTOM = 720, 240, 60, 20, 40
TICKS_MB = (1, 4, 8, 12)
TALLEST = 12_000_000.0


def seconds_of_a_greedy_client() -> list[float]:
    meter = Meter(RULE, 11, 1000)
    sent = [0.0] * SECONDS
    now_ms = 0.0
    while now_ms < SECONDS * 1000:
        sent[int(now_ms // 1000)] += REQUEST
        now_ms += REQUEST / LINK * 1000
        now_ms += meter.record(REQUEST, int(now_ms))
    return sent


def picture(sent: list[float]) -> str:
    plot_height = HEIGHT - TOP - BOTTOM
    slot = (WIDTH - LEFT - 20) / SECONDS

    def y_of(amount: float) -> float:
        return TOP + plot_height * (1 - amount / TALLEST)

    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" font-size="12">',
        f'<rect width="{WIDTH}" height="{HEIGHT}" fill="white"/>',
    ]
    for tick in TICKS_MB:
        y = y_of(tick * 1e6)
        lines.append(f'<line x1="{LEFT}" x2="{WIDTH - 20}" y1="{y:.1f}" y2="{y:.1f}" stroke="#ddd"/>')
        lines.append(f'<text x="{LEFT - 8}" y="{y + 4:.1f}" text-anchor="end">{tick} MB</text>')
    for second, amount in enumerate(sent):
        x, y = LEFT + second * slot + 1, y_of(amount)
        height = TOP + plot_height - y
        lines.append(f'<rect x="{x:.1f}" y="{y:.1f}" width="{slot - 2:.1f}" height="{height:.1f}" fill="#3a7ca5"/>')
    rule = y_of(RULE)
    lines.append(
        f'<line x1="{LEFT}" x2="{WIDTH - 20}" y1="{rule:.1f}" y2="{rule:.1f}" stroke="#c0392b" stroke-width="2"/>'
    )
    lines.append(f'<text x="{WIDTH - 24}" y="{rule - 6:.1f}" text-anchor="end" fill="#c0392b">the rule: 1 MB/s</text>')
    for second in range(0, SECONDS + 1, 5):
        x = LEFT + second * slot
        lines.append(f'<text x="{x:.1f}" y="{HEIGHT - 20}" text-anchor="middle">{second}</text>')
    average = sum(sent) / SECONDS / 1e6
    lines.append(
        f'<text x="{LEFT}" y="{HEIGHT - 4}">seconds; {average:.2f} MB/s on the average of {SECONDS} seconds</text>'
    )
    return "\n".join([*lines, "</svg>"])


if __name__ == "__main__":
    print(picture(seconds_of_a_greedy_client()))
