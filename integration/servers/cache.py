"""What was built or fetched once: a folder outside the clone, with a lock for each part."""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TypeAlias

__all__ = ["NotToBeHad", "Say", "cache_folder", "cached", "run_tool"]

Say: TypeAlias = Callable[[str], None]

# A registry that accepts a connection and then says nothing must not hold a test run for ever.
_LONGEST_S = 1800


class NotToBeHad(Exception):
    """A server or a jar cannot be had on this machine; the message names it and says why."""


def cache_folder() -> Path:
    """``$LAKELOG_SERVERS``, else ``$XDG_CACHE_HOME/lakelog``, else ``~/.cache/lakelog``."""
    if named := os.environ.get("LAKELOG_SERVERS"):
        return Path(named).absolute()
    caches = os.environ.get("XDG_CACHE_HOME")
    return (Path(caches) if caches else Path.home() / ".cache") / "lakelog"


def cached(name: str, make: Callable[[Path], None]) -> Path:
    """The cache's folder of this name, made if it is not there: wholly or not at all, and once however many processes ask.

    Args:
        name: says what is in it to the version, for a folder that is there is never made again.
        make: fills a folder that is given to it.

    Raises:
        NotToBeHad: raised by ``make``, or the cache cannot be written.
    """
    folder = cache_folder() / name
    if folder.is_dir():
        return folder
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        lock = (folder.parent / f".{name}.lock").open("w")
    except OSError as error:
        raise NotToBeHad(f"{name} has no place to be kept: {error}") from error
    with lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if folder.is_dir():
            return folder
        part = folder.with_name(f".{name}.part")
        shutil.rmtree(part, ignore_errors=True)
        part.mkdir()
        try:
            make(part)
            part.rename(folder)
        finally:
            shutil.rmtree(part, ignore_errors=True)
    return folder


def run_tool(what: str, command: Sequence[str], *, folder: Path, environment: Mapping[str, str] | None = None) -> None:
    """Run a build tool in a folder.

    Args:
        what: begins the message of the error.

    Raises:
        NotToBeHad: the tool is not on the PATH, or it failed.
    """
    if shutil.which(command[0]) is None:
        raise NotToBeHad(f"{what} is not to be had: no {command[0]} on the PATH")
    try:
        done = subprocess.run(
            command,
            cwd=folder,
            env={**os.environ, **(environment or {})},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=_LONGEST_S,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise NotToBeHad(f"{what} is not to be had: {error}") from error
    if done.returncode != 0:
        said = [line.strip() for line in (done.stdout + done.stderr).splitlines() if line.strip()]
        told = next((line for line in said if "ERROR" in line or "error" in line), said[-1] if said else f"exit code {done.returncode}")
        raise NotToBeHad(f"{what} is not to be had: {command[0]} failed: {told}")
