"""The store that fails on demand: what is done and what is answered, fault by fault and verb by verb."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakelog.storage.log_store import AlreadyExists, Created, LogStore, Unknown
from lakelog.storage.testing.clock import VirtualClock
from lakelog.storage.testing.faults import Call, Fault, FaultInjectingLogStore, NthCall, SeededFaults, SimulatedCrash, Verb
from lakelog.storage.testing.memory import MemoryLogStore

FOLDER = "memory://t/_delta_log"
OLD = f"{FOLDER}/old"
NEW = f"{FOLDER}/new"
REQUESTS: dict[Verb, Callable[[LogStore], object]] = {
    "read": lambda store: store.read(OLD),
    "put_if_absent": lambda store: store.put_if_absent(NEW, b"new bytes"),
    "put": lambda store: store.put(OLD, b"new bytes"),
    "list_from": lambda store: [info.name for info in store.list_from(f"{FOLDER}/")],
    "delete": lambda store: store.delete([OLD]),
}
UNTOUCHED = {"old": b"old bytes"}
DONE: dict[Verb, dict[str, bytes]] = {
    "read": UNTOUCHED,
    "put_if_absent": {"old": b"old bytes", "new": b"new bytes"},
    "put": {"old": b"new bytes"},
    "list_from": UNTOUCHED,
    "delete": {},
}
VERBS = list(REQUESTS)


def contents(store: MemoryLogStore) -> dict[str, bytes]:
    store.put(f"{FOLDER}/~", b"")
    return {info.name: store.read(info.path) for info in store.list_from(f"{FOLDER}/") if info.name != "~"}


def inner() -> MemoryLogStore:
    store = MemoryLogStore()
    store.put(OLD, b"old bytes")
    return store


def faulty(fault: Fault, **more: object) -> tuple[MemoryLogStore, FaultInjectingLogStore]:
    store = inner()
    return store, FaultInjectingLogStore(store, NthCall(1, fault), **more)


def expect_unsure(verb: Verb, store: FaultInjectingLogStore) -> None:
    if verb == "put_if_absent":
        outcome = store.put_if_absent(NEW, b"new bytes")
        assert isinstance(outcome, Unknown)
        assert NEW in str(outcome.cause)
    else:
        with pytest.raises(OSError, match=r"old|_delta_log/"):
            REQUESTS[verb](store)


def test_without_faults_everything_passes() -> None:
    store = inner()
    wrapper = FaultInjectingLogStore(store, lambda call: None)
    assert [request(wrapper) for request in REQUESTS.values()] == [b"old bytes", Created(), None, ["new", "old"], None]
    assert contents(store) == {"new": b"new bytes"}
    assert wrapper.calls == [
        Call(1, "read", OLD),
        Call(2, "put_if_absent", NEW),
        Call(3, "put", OLD),
        Call(4, "list_from", f"{FOLDER}/"),
        Call(5, "delete", OLD),
    ]


@pytest.mark.parametrize("verb", VERBS)
def test_fail_before_does_nothing_and_says_so(verb: Verb) -> None:
    store, wrapper = faulty(Fault.FAIL_BEFORE)
    with pytest.raises(OSError, match=r"old|new|_delta_log/"):
        REQUESTS[verb](wrapper)
    assert contents(store) == UNTOUCHED


@pytest.mark.parametrize("verb", VERBS)
@pytest.mark.parametrize("fault", [Fault.FAIL_AFTER, Fault.LOST_ANSWER])
def test_what_is_done_and_not_heard_of(verb: Verb, fault: Fault) -> None:
    store, wrapper = faulty(fault)
    expect_unsure(verb, wrapper)
    assert contents(store) == DONE[verb]


@pytest.mark.parametrize("verb", VERBS)
def test_a_lost_request_looks_to_its_caller_like_a_lost_answer(verb: Verb) -> None:
    store, wrapper = faulty(Fault.LOST_REQUEST)
    expect_unsure(verb, wrapper)
    wrapper.settle()
    assert contents(store) == UNTOUCHED


@pytest.mark.parametrize("verb", VERBS)
def test_late_is_done_when_it_settles(verb: Verb) -> None:
    store, wrapper = faulty(Fault.LATE)
    expect_unsure(verb, wrapper)
    assert contents(store) == UNTOUCHED
    wrapper.settle()
    assert contents(store) == DONE[verb]


def test_late_is_done_some_calls_later_without_being_asked_for() -> None:
    reads_before_arrival = set()
    for seed in range(50):
        store, wrapper = faulty(Fault.LATE, seed=seed)
        wrapper.put_if_absent(NEW, b"new bytes")
        reads = 0
        while "new" not in contents(store):
            wrapper.read(OLD)
            reads += 1
        reads_before_arrival.add(reads)
    assert len(reads_before_arrival) > 3
    assert 0 not in reads_before_arrival


def test_a_late_commit_does_not_replace_the_one_that_came_first() -> None:
    store, wrapper = faulty(Fault.LATE)
    wrapper.put_if_absent(NEW, b"late")
    assert wrapper.put_if_absent(NEW, b"in time") == Created()
    wrapper.settle()
    assert store.read(NEW) == b"in time"


@pytest.mark.parametrize("verb", VERBS)
def test_a_duplicate_is_answered_once_and_done_twice(verb: Verb) -> None:
    store, wrapper = faulty(Fault.DUPLICATE)
    assert REQUESTS[verb](wrapper) == REQUESTS[verb](inner())
    assert contents(store) == DONE[verb]
    store.put(OLD, b"of another writer")
    store.delete([NEW])
    wrapper.settle()
    again: dict[Verb, dict[str, bytes]] = {
        "put_if_absent": {"old": b"of another writer", "new": b"new bytes"},
        "put": {"old": b"new bytes"},
        "delete": {},
    }
    assert contents(store) == again.get(verb, {"old": b"of another writer"})


def test_a_torn_read_gives_a_part_of_the_bytes() -> None:
    given_back = set()
    for seed in range(50):
        _, wrapper = faulty(Fault.TORN, seed=seed)
        given_back.add(wrapper.read(OLD))
    assert all(b"old bytes".startswith(data) and data != b"old bytes" for data in given_back)
    assert len(given_back) > 3


def test_a_torn_read_of_nothing_is_nothing() -> None:
    store, wrapper = faulty(Fault.TORN)
    store.put(OLD, b"")
    assert wrapper.read(OLD) == b""


@pytest.mark.parametrize("verb", ["put_if_absent", "put", "delete"])
def test_a_torn_write_leaves_nothing(verb: Verb) -> None:
    store, wrapper = faulty(Fault.TORN)
    with pytest.raises(OSError, match=r"old|new"):
        REQUESTS[verb](wrapper)
    assert contents(store) == UNTOUCHED


def test_a_torn_listing_breaks_off_and_says_so() -> None:
    shown = set()
    for seed in range(50):
        store, wrapper = faulty(Fault.TORN, seed=seed)
        store.put(NEW, b"")
        names = []
        with pytest.raises(OSError, match="_delta_log/"):
            names.extend(info.name for info in wrapper.list_from(f"{FOLDER}/"))
        shown.add(tuple(names))
    # list.extend keeps what came before the error.
    assert shown == {(), ("new",), ("new", "old")}


@pytest.mark.parametrize("verb", VERBS)
def test_a_delay_costs_time_alone(verb: Verb) -> None:
    clock = VirtualClock(now_ms=0)
    store, wrapper = faulty(Fault.DELAY, clock=clock)
    assert REQUESTS[verb](wrapper) == REQUESTS[verb](inner())
    assert contents(store) == DONE[verb]
    assert 0 < clock.now_ms() <= 60_000


def test_a_delay_without_a_clock_says_what_is_missing() -> None:
    _, wrapper = faulty(Fault.DELAY)
    with pytest.raises(ValueError, match="clock=VirtualClock"):
        wrapper.read(OLD)


@pytest.mark.parametrize("verb", VERBS)
def test_a_crash_before_or_after_the_effect_is_no_exception(verb: Verb) -> None:
    assert not issubclass(SimulatedCrash, Exception)
    for fault, expected in [(Fault.CRASH_BEFORE, UNTOUCHED), (Fault.CRASH_AFTER, DONE[verb])]:
        store, wrapper = faulty(fault)
        with pytest.raises(SimulatedCrash):
            REQUESTS[verb](wrapper)
        assert contents(store) == expected


def test_what_the_store_itself_says_is_heard_unless_the_answer_is_lost() -> None:
    wrapper = FaultInjectingLogStore(inner(), NthCall(3, Fault.LOST_ANSWER))
    with pytest.raises(FileNotFoundError):
        wrapper.read(NEW)
    assert wrapper.put_if_absent(OLD, b"") == AlreadyExists()
    with pytest.raises(TimeoutError):
        wrapper.read(NEW)


def test_the_nth_call_alone_fails() -> None:
    wrapper = FaultInjectingLogStore(inner(), NthCall(2, Fault.FAIL_BEFORE))
    assert wrapper.read(OLD) == b"old bytes"
    with pytest.raises(OSError, match="old"):
        wrapper.read(OLD)
    assert wrapper.read(OLD) == b"old bytes"


def test_a_delete_of_several_is_one_call_each_so_that_it_can_fail_between() -> None:
    store = inner()
    store.put(NEW, b"")
    wrapper = FaultInjectingLogStore(store, NthCall(2, Fault.FAIL_BEFORE))
    with pytest.raises(OSError, match="old"):
        wrapper.delete([NEW, OLD])
    assert contents(store) == UNTOUCHED


def test_a_schedule_may_let_another_client_act_in_between() -> None:
    def rival(call: Call) -> None:
        if call.number == 1:
            wrapper.put_if_absent(NEW, b"rival")

    wrapper = FaultInjectingLogStore(inner(), rival)
    assert wrapper.put_if_absent(NEW, b"ours") == AlreadyExists()
    assert wrapper.read(NEW) == b"rival"


RATES = st.dictionaries(st.sampled_from(Fault), st.floats(0, 1 / len(Fault)))


@given(seed=st.integers(), rates=RATES)
def test_a_seed_repeats_a_whole_run(seed: int, rates: dict[Fault, float]) -> None:
    def run(rates: dict[Fault, float]) -> list[object]:
        clock = VirtualClock(seed=seed)
        store = inner()
        wrapper = FaultInjectingLogStore(store, SeededFaults(seed, rates), seed=seed, clock=clock)
        answers: list[object] = []
        for number in range(30):
            try:
                answers.append(REQUESTS[VERBS[number % len(VERBS)]](wrapper))
            except (OSError, SimulatedCrash) as error:
                answers.append(error)
            answers.append(contents(store))
        wrapper.settle()
        return [*map(repr, answers), contents(store), clock.now_ms()]

    assert run(rates) == run(dict(reversed(rates.items())))


def test_faults_come_as_often_as_asked_for() -> None:
    schedule = SeededFaults(3, {Fault.LATE: 0.2, Fault.TORN: 0.05, Fault.DELAY: 0.0})
    drawn = Counter(schedule(Call(number, "read", OLD)) for number in range(20_000))
    assert set(drawn) == {Fault.LATE, Fault.TORN, None}
    assert 3_800 < drawn[Fault.LATE] < 4_200
    assert 900 < drawn[Fault.TORN] < 1_100


def test_certain_faults_always_come() -> None:
    schedule = SeededFaults(3, {Fault.LATE: 1.0})
    assert {schedule(Call(number, "read", OLD)) for number in range(1_000)} == {Fault.LATE}


@pytest.mark.parametrize("rates", [{Fault.LATE: -0.1}, {Fault.LATE: 0.6, Fault.TORN: 0.6}])
def test_rates_that_are_no_shares_are_refused(rates: dict[Fault, float]) -> None:
    with pytest.raises(ValueError, match="together at most 1"):
        SeededFaults(1, rates)
