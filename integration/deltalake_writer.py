"""A writer of the ``deltalake`` package in a process of its own: appends rows to a table, each commit with its name in it.

    python -m integration.deltalake_writer '{"root": ..., "options": {...}, "name": ..., "appends": ...}'

It says ``ready`` once it has imported everything, waits for a line on standard input, and prints the name of every append that was
acknowledged.
"""

from __future__ import annotations

import json
import sys

import pyarrow as pa
from deltalake import CommitProperties, write_deltalake

# Losing a race is no failure here.
_RETRIES = 500


def main(text: str) -> None:
    told = json.loads(text)
    print("ready", flush=True)
    sys.stdin.readline()
    for number in range(told["appends"]):
        name = f"{told['name']}-{number}"
        write_deltalake(
            told["root"],
            pa.table({"id": pa.array([number], pa.int64())}),
            mode="append",
            storage_options=told["options"],
            commit_properties=CommitProperties(custom_metadata={"append": name}, max_commit_retries=_RETRIES),
        )
        print(name, flush=True)


if __name__ == "__main__":
    main(sys.argv[1])
