"""The files that browsers get. Only what lies in the folder at the start is served, by its exact name."""

from __future__ import annotations

import hashlib
from pathlib import Path

from starlette.responses import Response

from ottla.console.api.errors import ApiError, not_found

FOLDER = Path(__file__).parent / "pages"
VENDOR = "vendor"
TYPES = {
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".svg": "image/svg+xml",
    ".txt": "text/plain; charset=utf-8",
}
MISSING = "the pages lack their libraries: make pages (needs npm), or install a wheel of ottla. The API is there"


class Assets:
    """Files by their names, read once and again when they have changed."""

    def __init__(self, folder: Path = FOLDER) -> None:
        self.paths = {
            str(path.relative_to(folder)).encode(): path
            for path in folder.rglob("*")
            if path.is_file() and path.suffix in TYPES
        }
        self.is_complete = any(name.startswith(VENDOR.encode()) for name in self.paths)
        self.read: dict[bytes, tuple[int, str, bytes]] = {}

    def __repr__(self) -> str:
        return f"<Assets {len(self.paths)} files>"

    def file(self, name: bytes, known_tag: str | None) -> Response:
        if not self.is_complete and name == b"index.html":
            raise ApiError(503, "NO_PAGES", MISSING)
        if name not in self.paths:
            raise not_found("there is no such file")
        tag, data = self._read(name)
        if known_tag == tag:
            return Response(status_code=304, headers={"ETag": tag})
        return Response(data, headers={"ETag": tag}, media_type=TYPES[self.paths[name].suffix])

    def _read(self, name: bytes) -> tuple[str, bytes]:
        path = self.paths[name]
        changed_ns = path.stat().st_mtime_ns
        kept = self.read.get(name)
        if kept is None or kept[0] != changed_ns:
            data = path.read_bytes()
            kept = self.read[name] = changed_ns, f'"{hashlib.sha256(data).hexdigest()[:20]}"', data
        return kept[1], kept[2]
