"""The clock, sleep, randomness and threads, injected so that a test can say what they give."""

from __future__ import annotations

import random
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Protocol, TypeVar

_T = TypeVar("_T")
_R = TypeVar("_R")

# Requests at once where there are many, so that an object store's latency is paid once and not per request.
_THREADS = 8
# What answers within this time is near: a thread would cost more than the wait.
_AT_HAND_S = 0.001
# Answers that wait at most until they are taken.
_READ_AHEAD = 64


class Parallel(Protocol):
    """Applies a function to many items, the answers in the items' order."""

    def __call__(self, function: Callable[[_T], _R], items: Sequence[_T], /) -> Iterator[_R]: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Environment:
    """What the outside world tells a table log.

    Attributes:
        now_ms: milliseconds since the epoch.
        sleep: waits for a number of seconds.
        random: a number in [0, 1).
        new_uuid: a fresh random UUID as text.
        parallel: applies a function that waits for a store to many items.
    """

    now_ms: Callable[[], int]
    sleep: Callable[[float], None]
    random: Callable[[], float]
    new_uuid: Callable[[], str]
    parallel: Parallel

    @classmethod
    def system(cls) -> Environment:
        """The machine's own."""
        # A source of its own: a fork that shares the module's would give its siblings the same delays.
        source = random.SystemRandom()
        return cls(
            now_ms=lambda: time.time_ns() // 1_000_000,
            sleep=time.sleep,
            random=source.random,
            new_uuid=lambda: str(uuid.uuid4()),
            parallel=in_threads,
        )


def in_threads(function: Callable[[_T], _R], items: Sequence[_T], /) -> Iterator[_R]:
    """`Parallel` with a few threads from the first item on that makes it wait; of one or two items, and of what is at hand, none."""
    done, slow = 0, False
    while done < len(items) and not (slow and len(items) - done > 1):
        started = time.perf_counter()
        answer = function(items[done])
        slow = time.perf_counter() - started > _AT_HAND_S
        done += 1
        yield answer
    if done == len(items):
        return
    with ThreadPoolExecutor(max_workers=_THREADS, thread_name_prefix="lakelog-log") as pool:
        for start in range(done, len(items), _READ_AHEAD):
            yield from pool.map(function, items[start : start + _READ_AHEAD])
