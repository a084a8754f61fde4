"""The schema registry beside what `ottla up` and `ottla demo` run: a guest, as the console is."""

from __future__ import annotations

PORT = 8081
NEEDED = ("fastavro", "msgspec", "starlette", "uvicorn")
