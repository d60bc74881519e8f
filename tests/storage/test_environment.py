from __future__ import annotations

import threading

import pytest

from lakelog.storage import environment
from lakelog.storage.environment import in_threads


def threads_of(count: int) -> list[str]:
    """The threads that worked on so many items, in the items' order."""
    answers = list(in_threads(lambda item: (item, threading.current_thread().name), range(count)))
    assert [item for item, _ in answers] == list(range(count))
    return [thread for _, thread in answers]


def test_what_is_at_hand_needs_no_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(environment, "_AT_HAND_S", 60.0)
    assert set(threads_of(200)) == {threading.current_thread().name}


@pytest.mark.parametrize(("count", "alone"), [(0, 0), (1, 1), (2, 2), (3, 1), (200, 1)])
def test_what_has_to_be_waited_for_is_waited_for_in_threads(monkeypatch: pytest.MonkeyPatch, count: int, alone: int) -> None:
    monkeypatch.setattr(environment, "_AT_HAND_S", -1.0)
    threads = threads_of(count)
    here = threading.current_thread().name
    assert threads[:alone] == [here] * alone
    assert here not in threads[alone:]
