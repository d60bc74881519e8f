"""Servers as child processes on loopback: a free port, a wait until they answer, an end with the process that started them."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from subprocess import Popen

__all__ = ["answers", "running"]

_GUARDIAN = Path(__file__).with_name("guardian.py")
# Between free and taken lies a moment in which somebody else may take the port.
_ATTEMPTS = 3
_LONGEST_START_S = 120
_LONGEST_STOP_S = 30


@contextmanager
def running(
    name: str,
    command: Callable[[int], Sequence[str]],
    up: Callable[[int], bool],
    *,
    folder: Path,
    environment: Mapping[str, str] | None = None,
) -> Iterator[int]:
    """The port of a server that answers, until the context ends or this process does.

    Args:
        name: of the server, in messages and of its log file in ``folder``.
        command: the command line that listens on a port.
        up: whether the server on a port answers.
        folder: there is the server's log; it is the server's working directory too.
        environment: variables added to this process' own.

    Raises:
        RuntimeError: it did not start; the message ends with what it printed last.
    """
    folder.mkdir(parents=True, exist_ok=True)
    log = folder / f"{name}.log"
    for attempt in range(1, _ATTEMPTS + 1):
        port = _free_port()
        process = _start(command(port), folder=folder, log=log, environment=environment)
        try:
            if _wait(process, port, up):
                yield port
                return
        finally:
            _stop(process)
        if attempt == _ATTEMPTS:
            tail = log.read_text(encoding="utf-8", errors="replace")[-2000:]
            raise RuntimeError(f"{name} did not start; {log} ends with:\n{tail}")


def answers(url: str) -> bool:
    """Whether something at the URL speaks HTTP, whatever it says."""
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with opener.open(url, timeout=5):
            return True
    except urllib.error.HTTPError as error:
        # A server that is still starting says so with 503.
        return error.code != 503
    except (OSError, ValueError):
        return False


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def _start(command: Sequence[str], *, folder: Path, log: Path, environment: Mapping[str, str] | None) -> Popen[bytes]:
    with log.open("ab") as output:
        return Popen(
            # Without site-packages: it needs none, and starts sooner.
            [sys.executable, "-S", "-E", str(_GUARDIAN), *command],
            cwd=folder,
            env={**os.environ, **(environment or {})},
            stdin=subprocess.PIPE,
            stdout=output,
            stderr=subprocess.STDOUT,
            # Ctrl-C is for the test run, which still needs the server for its own clean-up.
            start_new_session=True,
        )


def _wait(process: Popen[bytes], port: int, up: Callable[[int], bool]) -> bool:
    until = time.monotonic() + _LONGEST_START_S
    while process.poll() is None and time.monotonic() < until:
        # Asked again after the answer: another program's server on the same port is not this one.
        if up(port) and process.poll() is None:
            return True
        time.sleep(0.1)
    return False


def _stop(process: Popen[bytes]) -> None:
    assert process.stdin is not None
    process.stdin.close()
    try:
        process.wait(_LONGEST_STOP_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
