"""The clock, sleep and randomness, injected so that a test can say what they give."""

from __future__ import annotations

import random
import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Environment:
    """What the outside world tells a table log.

    Attributes:
        now_ms: milliseconds since the epoch.
        sleep: waits for a number of seconds.
        random: a number in [0, 1).
        new_uuid: a fresh random UUID as text.
    """

    now_ms: Callable[[], int]
    sleep: Callable[[float], None]
    random: Callable[[], float]
    new_uuid: Callable[[], str]

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
        )
