"""The virtual clock."""

from __future__ import annotations

import uuid

import pytest

from lakelog.storage.testing.clock import VirtualClock


def test_sleeping_moves_the_clock_for_all_who_share_it() -> None:
    clock = VirtualClock(now_ms=5_000)
    mine, theirs = clock.environment(), clock.environment()
    mine.sleep(1.5)
    theirs.sleep(0.0004)
    theirs.sleep(0.0006)
    assert (mine.now_ms(), theirs.now_ms(), clock.now_ms()) == (6_501, 6_501, 6_501)


def test_the_clock_is_set_on_and_back() -> None:
    clock = VirtualClock()
    clock.advance_ms(86_400_000)
    assert clock.now_ms() == 1_700_086_400_000
    clock.advance_ms(-86_400_001)
    assert clock.now_ms() == 1_699_999_999_999


def test_a_negative_sleep_is_an_error_as_of_the_true_clock() -> None:
    with pytest.raises(ValueError, match="advance_ms"):
        VirtualClock().sleep(-1)


def test_a_seed_repeats_every_draw_and_another_does_not() -> None:
    def draws(seed: int) -> list[object]:
        environment = VirtualClock(seed=seed).environment()
        return [environment.random(), environment.new_uuid(), environment.random()]

    assert draws(7) == draws(7)
    assert draws(7) != draws(8)


def test_no_two_environments_of_one_clock_draw_the_same_identity() -> None:
    clock = VirtualClock()
    drawn = [clock.environment().new_uuid() for _ in range(1000)]
    assert len(set(drawn)) == 1000
    assert {uuid.UUID(one).version for one in drawn} == {4}


def test_one_after_another_in_the_callers_thread() -> None:
    seen: list[int] = []
    answers = VirtualClock().environment().parallel(lambda item: (seen.append(item), item * 2)[1], [1, 2, 3])
    assert seen == []
    assert list(answers) == [2, 4, 6]
