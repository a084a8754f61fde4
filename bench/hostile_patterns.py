"""Legal but expensive regular expressions: small text for large programs, and many simultaneous states.

The names say what each is meant to exhaust. ACCEPTED are at the edge of what brokers take: they have to be served.
"""

import random
from collections.abc import Iterator
from string import ascii_lowercase

HOSTILE: dict[str, str] = {
    "repeated groups": "(.?){1000}" * 3,
    "nested brackets": "(" * 8_000 + "a" + ")" * 8_000,
    "nested loops": "(?:" * 900 + "a*" + ")*" * 900,
    "classes of Unicode": r"\pL{1000}" * 1_555,
    "classes without repetition": r"\pL" * 4_000,
    "classes in either case": "(?i)" + r"\pL" * 4_000,
    "classes in a set": "[" + r"\pL\pN\pS" * 1_300 + "]",
    "scripts": r"\p{Han}\p{Latin}\p{Greek}" * 700,
    "repeated sets": "[a-z]{1000}" * 1_400,
    "nested repetitions": "(((a{10}){10}){10})" * 700,
    "optional parts": "a?" * 8_000,
    "optional alternatives": "(|a)" * 4_000,
    "repetitions that become one": "(x{1,1000})" * 10,
    "repetitions in a row": "[a-z]{1,9}" * 1_500,
    "loops that end together": "|".join(f"t{number}.+" for number in range(2_300)),
    "empty groups": "()" * 8_000,
    "loops of alternatives": "(a|b)*" * 2_700,
    "any character": "." * 30_000,
    "words": r"\w+\W*" * 2_700,
    "repetitions behind flags": r"\pL(?s){0,400}",
    "repetitions behind nothing quoted": r"\pL\Q\E{0,400}",
}

ACCEPTED: dict[str, str] = {
    "negated sets": "[^a-z]" * 2_700,
    "backtracking": "(a+)+$" * 100,
    "many states": "[ab]?[a-z]*a.{500}",
    "optional copies": "(.?){900}",
    "loops": ".*[ab]" * 300,
    "topic names": "|".join(f"orders.eu-{number:04}.v1" for number in range(1_000))[: 16 << 10].rpartition("|")[0],
}


def patterns(seed: int) -> Iterator[str]:
    """All of them in turn, without end; no two are the same."""
    source = random.Random(seed)
    while True:
        for pattern in (*HOSTILE.values(), *ACCEPTED.values()):
            yield f"{pattern}|{''.join(source.choices(ascii_lowercase, k=12))}"
