"""Many processes on one local table, at length; first left alone, then with writers killed at random.

``make soak`` runs it. Environment:
    WRITERS  processes at once, 64 by default
    APPENDS  of each, 200 by default
    KILLS    how many writers are killed in the second half, about, 100 by default; 0 leaves it out
    SEED     of the kills, 0 by default
    MINUTES  go on with new tables and new seeds until so many have passed; by default each half runs once

Exits with 1 when the table is not what the acknowledgements say.
"""

from __future__ import annotations

import os
import sys
import tempfile
import time
from pathlib import Path

from tests.processes.race import Race, check, make_table, race
from tests.processes.table import Table


def main() -> int:
    get = os.environ.get
    writers, appends = int(get("WRITERS", "64")), int(get("APPENDS", "200"))
    kills, seed, minutes = int(get("KILLS", "100")), int(get("SEED", "0")), float(get("MINUTES", "0"))
    print(f"{writers} processes x {appends} appends, {os.cpu_count()} cores", flush=True)
    until = time.monotonic() + minutes * 60
    while True:
        for kill_after in (None, max(1, writers * appends // kills)) if kills else (None,):
            with tempfile.TemporaryDirectory(prefix="lakelog-soak-") as folder:
                table = Table(str(Path(folder) / "t"))
                make_table(table)
                result = race(table, writers=writers, appends=appends, kill_after=kill_after, seed=seed)
                print(report(result, writers * appends), flush=True)
                try:
                    check(table, result, wanted=writers * appends)
                except AssertionError as failure:
                    print(f"FAILED with seed {seed}: {failure}", *result.failures, sep="\n", flush=True)
                    return 1
                print("every acknowledged append is there once; versions contiguous; deltalake lists the same files", flush=True)
        seed += 1
        if time.monotonic() >= until:
            return 0


def report(result: Race, wanted: int) -> str:
    """How many landed, how fast, how long one waited, and how far the writers were apart."""
    took = sorted(said.took_ms for said in result.acknowledged.values()) or [0]
    ended = sorted(result.finished_s) or [0.0]
    return (
        f"{len(result.acknowledged):,} of {wanted:,} appends acknowledged in {result.seconds:.1f} s "
        f"({len(result.acknowledged) / max(result.seconds, 0.001):.1f} a second), {result.kills} writers killed; "
        f"one append took {took[len(took) // 2]} ms in the median, {took[len(took) * 95 // 100]} ms at 95 %, {took[-1]} ms at most; "
        f"first writer done after {ended[0]:.1f} s, last after {ended[-1]:.1f} s"
    )


if __name__ == "__main__":
    sys.exit(main())
