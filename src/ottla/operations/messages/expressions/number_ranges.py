"""How numbers are written that are greater or smaller than a limit: expressions that find all of them, and little more.

A number is judged by its sign and its digits before the dot, so `> 41.5` also finds 41.2. What is written with an
exponent (`4.2e1`), and what Python's decoder takes for a number besides (Infinity, NaN), is always found.

Rules:
1. Never lose one: -0 is as large as 0; a number is over where something follows that is no digit.
2. Only limits with up to DIGITS_MAX digits before the dot: expressions for longer ones are not worth it.
"""

from __future__ import annotations

from decimal import Decimal

DIGITS_MAX = 18
ALWAYS = "-?[0-9]+(?:\\.[0-9]+)?[eE]|-?[IN]"
OVER = "(?:[^0-9]|$)"


def numbers_beyond(operator: str, limit: Decimal) -> str | None:
    """RE2 for how numbers begin that may be `operator` (< <= > >=) the limit; None if there is no good one."""
    if not limit.is_finite() or limit.adjusted() >= DIGITS_MAX:
        return None
    is_greater = operator in (">", ">=")
    whole = int(abs(limit))
    if is_greater == (limit >= 0):  # further away from zero, on the side of the limit
        sign = "" if is_greater else "-"
        found = [f"{sign}{_at_least(whole)}"]
        if whole == 0:
            found.append("-0" if is_greater else "0")
    else:  # everything on the other side of zero, and what is nearer to it than the limit
        sign = "-" if is_greater else ""
        found = [f"{'[0-9]' if is_greater else '-'}", f"{sign}{_at_most(whole)}{OVER}"]
    return f"(?:{'|'.join([*found, ALWAYS])})"


def _at_least(number: int) -> str:
    """Digits of whole numbers that are not smaller; of longer ones the beginning is enough."""
    if number == 0:
        return "[0-9]"
    digits = str(number)
    ways = [f"[1-9][0-9]{{{len(digits)}}}", digits]
    for place, digit in enumerate(digits):
        if digit != "9":
            ways.append(f"{digits[:place]}[{int(digit) + 1}-9]{_any(len(digits) - place - 1)}")
    return f"(?:{'|'.join(ways)})"


def _at_most(number: int) -> str:
    """Digits of whole numbers that are not larger."""
    digits = str(number)
    ways = [digits] + ([f"[0-9]{{1,{len(digits) - 1}}}"] if len(digits) > 1 else [])
    for place, digit in enumerate(digits):
        if digit != "0":
            ways.append(f"{digits[:place]}[0-{int(digit) - 1}]{_any(len(digits) - place - 1)}")
    return f"(?:{'|'.join(ways)})"


def _any(count: int) -> str:
    return f"[0-9]{{{count}}}" if count else ""
