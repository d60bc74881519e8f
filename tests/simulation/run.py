"""Simulations by the thousand: ``python -m tests.simulation.run --seeds 0:2000``, or one with its story: ``--seed 7 --trace``."""

from __future__ import annotations

import argparse
import gc
import json
import logging
import signal
import sys
import time
from collections import deque
from collections.abc import Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from tests.simulation.simulation import COMMITS, Simulation

_BLOCK = 100
_REPORT_S = 10.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Block:
    """What some seeds in a row came to.

    Attributes:
        first: the first of them.
        seeds: how many were run; up to the one that failed.
        commits: acknowledged, over all.
        failure: the seed that failed and why, None where none did.
    """

    first: int
    seeds: int
    commits: int
    failure: tuple[int, str] | None


def replay_command(seed: int, commits: int = COMMITS) -> str:
    """What to type to see a run with every request."""
    more = "" if commits == COMMITS else f" --commits {commits}"
    return f"python -m tests.simulation.run --seed {seed} --trace{more}"


def run_block(first: int, stop: int, commits: int = COMMITS) -> Block:
    """Run the seeds from ``first`` on up to ``stop``, or to the first that fails."""
    acknowledged = 0
    for seed in range(first, stop):
        try:
            acknowledged += Simulation(seed, commits).run().acknowledged
        except Exception as error:
            return Block(first=first, seeds=seed - first, commits=acknowledged, failure=(seed, f"{type(error).__name__}: {error}"))
    return Block(first=first, seeds=stop - first, commits=acknowledged, failure=None)


def story(seed: int, commits: int = COMMITS) -> tuple[str, Exception | None]:
    """A run in numbered steps (client, verb, file, answer), and how it ended: None for well."""
    simulation = Simulation(seed, commits, traced=True)
    failure: Exception | None = None
    try:
        simulation.run()
    except Exception as error:
        failure = error
    end = "all is well" if failure is None else f"{type(failure).__name__}: {failure}"
    return "\n".join([simulation.describe(), *(simulation.trace or ()), f"seed {seed}: {end}"]), failure


def _blocks(first: int, stop: int | None, commits: int, workers: int) -> Iterator[Block]:
    """Blocks in the order of their seeds."""
    starts = iter(range(first, stop if stop is not None else sys.maxsize, _BLOCK))
    ends = ((start, start + _BLOCK if stop is None else min(stop, start + _BLOCK)) for start in starts)
    if workers == 1:
        yield from (run_block(start, end, commits) for start, end in ends)
        return
    with ProcessPoolExecutor(workers, initializer=_prepare) as pool:
        under_way: deque[Future[Block]] = deque()
        try:
            for start, end in ends:
                under_way.append(pool.submit(run_block, start, end, commits))
                if len(under_way) > 2 * workers:
                    yield under_way.popleft().result()
            while under_way:
                yield under_way.popleft().result()
        finally:
            pool.shutdown(cancel_futures=True)


def _prepare() -> None:
    # The commit loop warns of every unknown outcome, of which there are many here.
    logging.getLogger("lakelog").setLevel(logging.CRITICAL)
    # What was imported stays, and a run leaves little behind that is not freed at once.
    gc.freeze()
    gc.set_threshold(50_000, 20, 20)


def _range(text: str) -> tuple[int, int | None]:
    first, colon, stop = text.partition(":")
    return int(first or 0), int(stop) if stop else None if colon else int(first) + 1


def _arguments(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.simulation.run", description=__doc__)
    parser.add_argument("--seeds", type=_range, default=(0, 2000), metavar="FIRST:STOP", help="FIRST: goes on for ever (default 0:2000)")
    parser.add_argument("--seed", type=int, help="one seed alone")
    parser.add_argument("--trace", action="store_true", help="with --seed: every request and its answer")
    parser.add_argument("--commits", type=int, default=COMMITS, help="acknowledged commits for each seed (default %(default)s)")
    parser.add_argument("--workers", type=int, default=1, help="processes (default %(default)s)")
    parser.add_argument("--state", type=Path, help="remembers the next seed, so that a run that was cut off goes on from there")
    return parser.parse_args(arguments)


def main(arguments: list[str] | None = None) -> int:
    """The exit code: 1 where a seed failed."""
    given = _arguments(arguments)
    _prepare()
    if given.seed is not None:
        told, failure = story(given.seed, given.commits)
        print(told if given.trace else told.rpartition("\n")[2])
        return 0 if failure is None else 1
    first, stop = given.seeds
    if given.state is not None and given.state.exists():
        first = max(first, json.loads(given.state.read_text())["next"])
    return _run(first, stop, given)


def _run(first: int, stop: int | None, given: argparse.Namespace) -> int:
    started = told = time.monotonic()
    seeds = commits = 0
    for block in _blocks(first, stop, given.commits, given.workers):
        seeds += block.seeds
        commits += block.commits
        if given.state is not None:
            given.state.parent.mkdir(parents=True, exist_ok=True)
            given.state.write_text(json.dumps({"next": block.first + block.seeds}))
        if block.failure is not None:
            seed, reason = block.failure
            print(f"seed {seed}: {reason}\nTo see how it came to that: {replay_command(seed, given.commits)}", flush=True)
            return 1
        if time.monotonic() - told > _REPORT_S:
            told = time.monotonic()
            _tell(block.first + block.seeds, seeds, commits, told - started, given.workers)
    _tell(first + seeds, seeds, commits, time.monotonic() - started, given.workers)
    return 0


def _tell(next_seed: int, seeds: int, commits: int, seconds: float, workers: int) -> None:
    rate = commits / seconds if seconds else 0.0
    each = seconds * workers / commits * 1000 if commits else 0.0
    print(f"up to seed {next_seed:,}: {seeds:,} seeds, {commits:,} commits, {rate:,.0f} a second, {each:.2f} ms each", flush=True)


if __name__ == "__main__":
    # An exit ends the workers too; a process that a signal ends leaves them behind.
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))
    sys.exit(main())
