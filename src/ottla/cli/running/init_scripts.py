"""Scripts that run before a broker in a container reads its settings.

CUSTOM_INIT_SCRIPT holds shell commands; /docker-entrypoint-initdb.d holds files that end in .sh, taken in the order of
their names: an executable one is run, any other is read by the shell. They may write the settings file, and what they
export counts as if it had been set outside. What they print goes to the log. They run at every start.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from ottla.cli.terminal import ToolError

VARIABLE: Final = "CUSTOM_INIT_SCRIPT"
FOLDER: Final = Path("/docker-entrypoint-initdb.d")
SHELL: Final = "/bin/sh"
# Standard output is kept for the environment that is left behind: the broker's own output begins with its ready line.
FRAME: Final = "exec 3>&1 1>&2; set -e\n{commands}\nexec 1>&3 3>&-; exec env -0\n"


def run_init_scripts(environment: Mapping[str, str], folder: Path = FOLDER) -> dict[str, str]:
    """Run what there is, and return the environment as the scripts left it. Raises ToolError if one fails."""
    result = dict(environment)
    if environment.get(VARIABLE):
        result = _run(f'eval "${VARIABLE}"', VARIABLE, result)
    for path in sorted(folder.glob("*.sh")) if folder.is_dir() else ():
        command = '"$OTTLA_INIT_SCRIPT"' if os.access(path, os.X_OK) else '. "$OTTLA_INIT_SCRIPT"'
        result = _run(command, str(path), {**result, "OTTLA_INIT_SCRIPT": str(path)})
        result.pop("OTTLA_INIT_SCRIPT", None)
    return result


def _run(commands: str, name: str, environment: Mapping[str, str]) -> dict[str, str]:
    done = subprocess.run(  # noqa: S603 (whoever sets the environment of a container may run commands in it)
        [SHELL, "-c", FRAME.format(commands=commands)],
        env=dict(environment),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        check=False,
    )
    if done.returncode != 0:
        raise ToolError(f"{name} ended with exit code {done.returncode}: the broker is not started")
    pairs = (item.partition("=") for item in done.stdout.decode("utf-8", "surrogateescape").split("\0") if item)
    return {key: value for key, _, value in pairs}
