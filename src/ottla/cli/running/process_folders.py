"""Folders inside of a folder: each process of `ottla broker --processes N` has its own, `broker.ID`.

The dot keeps it from looking like the folder of a partition. One broker alone has the folder itself: who mistakes one
for the other would start without its data, so both are refused.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Final

from ottla.cli.terminal import ToolError

PREFIX: Final = "broker."
META_FILE: Final = "meta.properties"  # in each folder that a broker has used
NAMED_MAX: Final = 3


def own_folder(folder: str, broker_id: int) -> str:
    return str(Path(folder) / f"{PREFIX}{broker_id}")


def check_folders(folders: Iterable[str], broker_id: int) -> None:
    """Raises ToolError for folders of a broker that was alone; `broker_id` is that of the first process."""
    for folder in folders:
        if (Path(folder) / META_FILE).exists():
            raise ToolError(
                f"{folder} holds the data of a broker that was alone; with --processes each has a folder inside of it. "
                f"To go on with that data: stop the broker, and move all that is in {folder} into "
                f"{own_folder(folder, broker_id)}"
            )


def check_alone(folders: Iterable[str]) -> None:
    """Raises ToolError if one broker is to start where several have their folders."""
    for folder in map(Path, folders):
        if (folder / META_FILE).exists():
            continue
        owners = sorted(path.parent.name for path in folder.glob(f"{PREFIX}*/{META_FILE}"))
        if owners:
            named = ", ".join(owners[:NAMED_MAX]) + (", ..." if len(owners) > NAMED_MAX else "")
            raise ToolError(
                f"{folder} holds the data of several processes ({named}): start them with --processes {len(owners)}, "
                f"or one of them alone with --override log.dirs={folder / owners[0]}"
            )
