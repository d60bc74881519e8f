"""A LogStore over a service of AWS' kind that dies between two requests."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from unittest.mock import patch

from botocore.client import BaseClient

from lakelog.storage.log_store import LogStore
from tests.storage.testing import dying

__all__ = ["dying_stores"]


class _DyingLogStore(dying.DyingLogStore):
    """Over a store that asks by botocore's clients: each request is a step."""

    @contextmanager
    def _mortal(self) -> Iterator[None]:
        with patch.object(BaseClient, "_make_api_call", self._step(BaseClient._make_api_call)):
            yield


def dying_stores(make: Callable[[], LogStore]) -> Iterator[LogStore]:
    """Stores that die after no request, after one, and so on, up to the first that comes through."""
    return dying.dying_stores(make, _DyingLogStore)
