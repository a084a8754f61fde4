"""Small notes beside a checkpoint, replaced atomically and durably if the file system supports it."""

from __future__ import annotations

import pyarrow as pa
from pyarrow import fs

from ottla.pipelines.sinks.staging import local_path, replace_file


def read_note(folder: str, name: str) -> str | None:
    files, path = _place(folder, name)
    try:
        with files.open_input_stream(path) as stream:
            return bytes(stream.read()).decode()
    except (FileNotFoundError, pa.ArrowInvalid):
        return None


def write_note(folder: str, name: str, text: str) -> None:
    local = local_path(folder)
    if local is not None:
        local.mkdir(parents=True, exist_ok=True)
        replace_file(local / name, text)
        return
    files, path = _place(folder, name)
    files.create_dir(path.rpartition("/")[0])
    with files.open_output_stream(f"{path}.new") as stream:
        stream.write(text.encode())
    files.move(f"{path}.new", path)


def list_folder(folder: str) -> list[str]:
    """The names in the folder; empty if it does not exist."""
    local = local_path(folder)
    if local is not None:
        return sorted(each.name for each in local.iterdir()) if local.is_dir() else []
    files, path = _place(folder, "")
    found = files.get_file_info(fs.FileSelector(path.rstrip("/"), allow_not_found=True))
    return sorted(each.base_name for each in found)


def _place(folder: str, name: str) -> tuple[fs.FileSystem, str]:
    if "://" in folder:
        files, path = fs.FileSystem.from_uri(folder.replace("s3a://", "s3://"))
        return files, f"{path}/{name}"
    return fs.LocalFileSystem(), f"{folder}/{name}"
