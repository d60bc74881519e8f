"""Runs a command for as long as its own standard input stays open: ``python guardian.py COMMAND ...``.

Whoever started it holds the other end of the pipe. The system closes that end when the holder ends, also when it is killed, so that
no server outlives the test run that started it.
"""

from __future__ import annotations

import os
import subprocess
import sys
import threading

# A server that ignores the first signal for so long gets the second.
_GRACE_S = 3


def main(command: list[str]) -> int:
    server = subprocess.Popen(command, stdin=subprocess.DEVNULL)

    def follow() -> None:
        # The server ended by itself: so does the guardian, whose main thread waits for the pipe.
        os._exit(server.wait() & 0xFF or 1)

    threading.Thread(target=follow, daemon=True).start()
    while os.read(sys.stdin.fileno(), 1024):
        pass
    server.terminate()
    try:
        server.wait(_GRACE_S)
    except subprocess.TimeoutExpired:
        server.kill()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
