"""Time that moves only when told, and chance that a seed decides: a run that waited a day is repeated in a millisecond."""

from __future__ import annotations

import random
import threading
import uuid

from lakelog.storage.environment import Environment

__all__ = ["VirtualClock"]


class VirtualClock:
    """A clock that several clients may share. Nobody waits: who sleeps moves it on for all.

    Args:
        now_ms: what it shows at first, milliseconds since 1970-01-01 UTC.
        seed: decides the numbers and the UUIDs of its environments.
    """

    def __init__(self, now_ms: int = 1_700_000_000_000, seed: int = 0) -> None:
        # In microseconds, so that sleeps below a millisecond add up.
        self._now_us = now_ms * 1000
        self._random = random.Random(seed)
        self._lock = threading.Lock()

    def now_ms(self) -> int:
        """What it shows: milliseconds since 1970-01-01 UTC."""
        return self._now_us // 1000

    def sleep(self, seconds: float) -> None:
        """Move on by what a caller would have waited.

        Raises:
            ValueError: the number is negative, as of ``time.sleep``.
        """
        if seconds < 0:
            raise ValueError(f"Cannot sleep for {seconds} seconds; a clock is set back with advance_ms.")
        with self._lock:
            self._now_us += round(seconds * 1_000_000)

    def advance_ms(self, milliseconds: int) -> None:
        """Move on, or, by a negative number, back, as a machine's clock does when it is corrected."""
        with self._lock:
            self._now_us += milliseconds * 1000

    def environment(self) -> Environment:
        """What a table log needs to live by this clock, in one thread. Every call draws on the one seeded source: no UUID comes twice."""
        return Environment(now_ms=self.now_ms, sleep=self.sleep, random=self._random.random, new_uuid=self._new_uuid, parallel=map)

    def _new_uuid(self) -> str:
        return str(uuid.UUID(int=self._random.getrandbits(128), version=4))
