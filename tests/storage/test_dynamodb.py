"""The DynamoDB store over a fake of DynamoDB and files in memory: the protocol, and every way in which a step of it can fail."""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Iterable, Iterator

import pytest

from lakelog.core.errors import StorageError, StoreConfigurationError
from lakelog.storage.dynamodb import DynamoDBLogStore
from lakelog.storage.environment import Environment
from lakelog.storage.log_store import AlreadyExists, Created, FileInfo, LogStore, PutOutcome, Unknown
from lakelog.storage.testing import Fault, FaultInjectingLogStore, LogStoreConformance, MemoryLogStore, SimulatedCrash
from tests.storage.fake_dynamodb import LOG, ROOT, FakeClient, FakeDynamoDB, World, client_error, name, names, path

UUID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")


# the layout -----------------------------------------------------------------------------------------------------------


def test_a_commit_leaves_the_item_and_the_objects_of_the_reference() -> None:
    world = World()
    store = world.store()
    for version in range(3):
        assert store.put_if_absent(path(version), b"commit %d" % version) == Created()
    item = world.service.item(name(2))
    assert item is not None
    assert item.keys() == {"tablePath", "fileName", "tempPath", "complete", "expireTime"}
    assert item["tablePath"] == ROOT
    assert item["fileName"] == "00000000000000000002.json"
    temp, _, uuid = item["tempPath"].rpartition(".")
    assert temp == ".tmp/00000000000000000002.json"
    assert UUID.fullmatch(uuid)
    assert item["complete"] == "true"
    assert int(item["expireTime"]) == world.clock.now_ms() // 1000 + 86_400
    stored = world.service.tables["delta_log"][ROOT, name(2)]
    assert {kind for value in stored.values() for kind in value} == {"S", "N"}
    assert list(stored["expireTime"]) == ["N"]
    assert world.objects.read(f"{LOG}/{item['tempPath']}") == world.objects.read(path(2)) == b"commit 2"
    assert names(store) == [name(0), name(1), name(2)]


def test_a_table_at_the_root_of_its_bucket_has_the_key_that_hadoop_writes() -> None:
    world = World()
    assert world.store().put_if_absent(f"s3a://bucket/_delta_log/{name(0)}", b"0") == Created()
    assert [key for key, _ in world.service.tables["delta_log"]] == ["s3a://bucket/"]


@pytest.mark.parametrize("scheme", ["s3", "s3a", "s3n"])
def test_the_key_has_the_scheme_of_the_option_however_the_path_is_written(scheme: str) -> None:
    world = World()
    store = world.store(ddb__scheme=scheme)
    assert store.put_if_absent(path(0), b"0") == Created()
    assert [key for key, _ in world.service.tables["delta_log"]] == [f"{scheme}://bucket/some key/t"]


def test_what_is_no_commit_never_comes_to_dynamodb() -> None:
    world = World()
    client = FakeClient(world.service)
    store = DynamoDBLogStore({}, environment=world.clock.environment(), objects=world.objects, client=lambda: client)
    others = [
        f"{LOG}/_last_checkpoint",
        f"{LOG}/00000000000000000010.checkpoint.parquet",
        f"{LOG}/_staged_commits/{name(1)}",
        f"{LOG}/0.json",
        f"{ROOT}/{name(0)}",
    ]
    for other in others:
        assert store.put_if_absent(other, b"1") == Created()
        assert store.put_if_absent(other, b"2") == AlreadyExists()
        store.put(other, b"3")
        assert store.read(other) == b"3"
    store.put(path(7), b"overwritten")
    store.delete(others)
    assert client.calls == []
    assert world.commits() == {name(7): b"overwritten"}


def test_an_uncontended_commit_takes_two_puts_and_three_requests_to_dynamodb() -> None:
    world = World()
    store, client, objects = world.writer(lambda verb: None)
    store.put_if_absent(path(0), b"0")
    client.calls.clear()
    objects.calls.clear()
    assert store.put_if_absent(path(1), b"1") == Created()
    assert [verb for verb, _ in client.calls] == ["get_item", "put_item", "put_item"]
    assert [call.verb for call in objects.calls] == ["list_from", "put", "put_if_absent"]


# the contract ---------------------------------------------------------------------------------------------------------


class InLog(LogStore):
    """Puts every folder's files into a log below it, so that what the suite calls a commit is one."""

    def __init__(self, inner: LogStore) -> None:
        self.inner = inner

    def read(self, path: str) -> bytes:
        return self.inner.read(_inside(path))

    def put_if_absent(self, path: str, data: bytes) -> PutOutcome:
        return self.inner.put_if_absent(_inside(path), data)

    def put(self, path: str, data: bytes) -> None:
        self.inner.put(_inside(path), data)

    def list_from(self, path: str) -> Iterator[FileInfo]:
        folder = path.rpartition("/")[0]
        return (
            FileInfo(path=f"{folder}/{info.name}", size=info.size, modification_time_ms=info.modification_time_ms)
            for info in self.inner.list_from(_inside(path))
        )

    def delete(self, paths: Iterable[str]) -> None:
        self.inner.delete(map(_inside, paths))


def _inside(path: str) -> str:
    folder, _, file = path.rpartition("/")
    return f"{folder}/_delta_log/{file}"


class TestConformance(LogStoreConformance):
    rounds = 10
    long_listing = 40
    large_bytes = 1 << 18
    watched_bytes = 1 << 14
    # All of it lives in this process.
    test_of_processes_that_race_exactly_one_creates_the_file = None
    test_what_one_process_writes_another_lists_and_reads = None
    test_killed_writers_leave_whole_files_and_every_acknowledged_one = None

    @pytest.fixture(autouse=True)
    def place(self) -> None:
        self.objects = MemoryLogStore(Environment.system().now_ms)
        self.service = FakeDynamoDB("delta_log")

    def make_folder(self) -> str:
        return "s3a://bucket/t"

    def make_store(self) -> LogStore:
        store = DynamoDBLogStore({}, environment=Environment.system(), objects=self.objects, client=lambda: FakeClient(self.service))
        return InLog(store)

    def crashing_stores(self) -> Iterator[LogStore]:
        for step in range(12):
            count = itertools.count()

            def fault(verb: str, step: int = step, count: Iterator[int] = count) -> Fault | None:
                return Fault.CRASH_BEFORE if next(count) == step else None

            objects = FaultInjectingLogStore(self.objects, lambda call, fault=fault: fault(call.verb))
            store = DynamoDBLogStore(
                {},
                environment=Environment.system(),
                objects=objects,
                client=lambda fault=fault: FakeClient(self.service, fault),
            )
            yield InLog(store)


# a writer that dies, and requests that are lost -----------------------------------------------------------------------


class Nth:
    """One fault at one request, counted over S3 and DynamoDB together."""

    def __init__(self, number: int, fault: Fault) -> None:
        self.number, self.fault, self.seen, self.met = number, fault, 0, ""

    def __call__(self, verb: str) -> Fault | None:
        self.seen += 1
        if self.seen != self.number:
            return None
        self.met = verb
        return self.fault


# Two look for other schemes, one lists, one gets the entry before; then T, the claim, the file, and that it is complete.
REQUESTS = range(1, 9)
CLAIM = 6
FOLLOWERS: dict[str, Callable[[LogStore], object]] = {
    "lists": names,
    "reads": lambda store: _read(store, path(1)),
    "puts the same version": lambda store: store.put_if_absent(path(1), b"other"),
    "puts the next version": lambda store: store.put_if_absent(path(2), b"next"),
}


def _read(store: LogStore, of: str) -> bytes | None:
    try:
        return store.read(of)
    except FileNotFoundError:
        return None


@pytest.mark.parametrize("follower", FOLLOWERS)
@pytest.mark.parametrize("crash", [Fault.CRASH_BEFORE, Fault.CRASH_AFTER])
@pytest.mark.parametrize("request_", REQUESTS)
def test_a_commit_whose_writer_dies_is_completed_from_the_claim_on(request_: int, crash: Fault, follower: str) -> None:
    world = World()
    assert world.store().put_if_absent(path(0), b"0") == Created()
    schedule = Nth(request_, crash)
    store, _, _ = world.writer(schedule)
    with pytest.raises(SimulatedCrash):
        store.put_if_absent(path(1), b"1")
    claimed = world.service.item(name(1)) is not None
    assert claimed == (request_ > CLAIM or (request_ == CLAIM and crash is Fault.CRASH_AFTER)), schedule.met
    other = world.store()
    answer = FOLLOWERS[follower](other)
    if follower == "puts the same version":
        assert answer == (AlreadyExists() if claimed else Created())
        assert world.commits()[name(1)] == (b"1" if claimed else b"other")
    elif claimed:
        assert world.commits()[name(1)] == b"1"
        assert answer in ([name(0), name(1)], b"1", Created())
        item = world.service.item(name(1))
        assert item is not None
        assert item["complete"] == "true" or follower == "reads"
    else:
        assert name(1) not in world.commits()
        assert answer in ([name(0)], None, Created())


@pytest.mark.parametrize("fault", [Fault.FAIL_BEFORE, Fault.FAIL_AFTER, Fault.LOST_REQUEST, Fault.LOST_ANSWER, Fault.LATE, Fault.DUPLICATE])
@pytest.mark.parametrize("request_", REQUESTS)
def test_one_request_that_goes_wrong_never_makes_the_answer_untrue(request_: int, fault: Fault) -> None:
    world = World()
    assert world.store().put_if_absent(path(0), b"0") == Created()
    schedule = Nth(request_, fault)
    store, client, objects = world.writer(schedule)
    try:
        outcome: PutOutcome | Exception = store.put_if_absent(path(1), b"1")
    except (OSError, StorageError) as error:
        outcome = error
    assert schedule.met
    if isinstance(outcome, Exception):
        assert request_ < CLAIM, f"{schedule.met} failed, which is after the claim"
        assert world.service.item(name(1)) is None
    else:
        assert outcome == Created()
        # What other writers and readers see before the late request comes.
        assert names(world.store()) == [name(0), name(1)]
        assert world.store().read(path(1)) == b"1"
    client.settle()
    objects.settle()
    assert world.store().put_if_absent(path(2), b"2") == (Created())
    assert world.commits().get(name(1)) == (None if isinstance(outcome, Exception) else b"1")


@pytest.mark.parametrize("fault", [Fault.LOST_ANSWER, Fault.LATE, Fault.LOST_REQUEST, Fault.FAIL_AFTER])
def test_of_two_writers_the_one_with_the_lost_answers_learns_that_it_lost(fault: Fault) -> None:
    world = World()
    world.store().put_if_absent(path(0), b"0")
    other = world.store()
    seen: list[str] = []

    def schedule(verb: str) -> Fault | None:
        if verb == "put_item" and not seen:
            seen.append(verb)
            # The other one comes first.
            assert other.put_if_absent(path(1), b"other") == Created()
            return fault
        return None

    store, client, _ = world.writer(schedule)
    assert store.put_if_absent(path(1), b"1") == AlreadyExists()
    client.settle()
    assert world.commits()[name(1)] == b"other"
    assert names(world.store()) == [name(0), name(1)]


def test_a_claim_whose_answers_are_all_lost_is_unknown_and_may_be_repeated() -> None:
    world = World()
    world.store().put_if_absent(path(0), b"0")
    broken = True

    def schedule(verb: str) -> Fault | None:
        return Fault.LATE if broken and verb in ("put_item", "get_item") and claiming else None

    claiming = False

    class Late(MemoryLogStore):
        def put(self, path: str, data: bytes) -> None:
            nonlocal claiming
            claiming = True
            super().put(path, data)

    late = Late()
    late.__dict__.update(world.objects.__dict__)
    client = FakeClient(world.service, schedule)
    store = DynamoDBLogStore({}, environment=world.clock.environment(), objects=late, client=lambda: client)
    outcome = store.put_if_absent(path(1), b"1")
    assert isinstance(outcome, Unknown)
    assert isinstance(outcome.cause, OSError)
    assert _read(world.store(), path(1)) is None
    client.settle()
    # It came after all, and whoever asks finds it; the same bytes again are refused.
    broken = False
    assert store.put_if_absent(path(1), b"1") == AlreadyExists()
    assert store.read(path(1)) == b"1"


@pytest.mark.parametrize("fault", [Fault.LOST_REQUEST, Fault.LOST_ANSWER, Fault.LATE])
def test_a_commit_whose_file_cannot_be_made_is_made_by_the_next_reader(fault: Fault) -> None:
    world = World()
    world.store().put_if_absent(path(0), b"0")
    store, _, objects = world.writer(lambda verb: fault if verb == "put_if_absent" else None)
    assert store.put_if_absent(path(1), b"1") == Created()
    assert names(world.store()) == [name(0), name(1)]
    objects.settle()
    assert world.commits()[name(1)] == b"1"
    # The writer itself goes on, too.
    assert store.put_if_absent(path(2), b"2") == Created()
    assert names(world.store()) == [name(0), name(1), name(2)]


def test_a_refused_claim_of_which_nobody_says_who_has_it_is_unknown() -> None:
    world = World()
    world.store().put_if_absent(path(0), b"0")
    client = FakeClient(world.service)
    store = DynamoDBLogStore({}, environment=world.clock.environment(), objects=world.objects, client=lambda: client)
    claims: list[object] = []

    def refuse(**arguments: object) -> dict[str, object]:
        claims.append(arguments)
        client.get_item = fail  # type: ignore[method-assign,assignment]
        raise client_error("ConditionalCheckFailedException", "PutItem")

    def fail(**arguments: object) -> dict[str, object]:
        raise client_error("InternalServerError", "GetItem", 500)

    client.put_item = refuse  # type: ignore[method-assign,assignment]
    assert isinstance(store.put_if_absent(path(1), b"1"), Unknown)
    assert len(claims) == 5
    assert name(1) not in world.commits()


def test_remains_that_come_back_are_given_up() -> None:
    world = World()
    world.store().put_if_absent(path(0), b"0")
    client = FakeClient(world.service)
    world.put_entry(1, "1.old", complete=True)
    client.delete_item = lambda **arguments: {}  # type: ignore[method-assign]
    store = DynamoDBLogStore({}, environment=world.clock.environment(), objects=world.objects, client=lambda: client)
    with pytest.raises(StorageError, match="again and again"):
        store.put_if_absent(path(1), b"1")


def test_a_claim_that_dynamodb_refuses_for_good_is_an_error_and_nothing_is_committed() -> None:
    world = World()
    store, client, _ = world.writer(lambda verb: None)
    store.put_if_absent(path(0), b"0")

    def refuse(**arguments: object) -> dict[str, object]:
        raise client_error("AccessDeniedException", "PutItem", message="not authorized to perform: dynamodb:PutItem")

    client.put_item = refuse  # type: ignore[method-assign,assignment]
    with pytest.raises(PermissionError, match="dynamodb:PutItem"):
        store.put_if_absent(path(1), b"1")
    assert world.commits() == {name(0): b"0"}


def test_a_claim_that_is_throttled_for_a_while_comes_through() -> None:
    world = World()
    world.store().put_if_absent(path(0), b"0")
    throttled = itertools.count()
    store, _, _ = world.writer(lambda verb: Fault.FAIL_BEFORE if verb == "put_item" and next(throttled) < 3 else None)
    assert store.put_if_absent(path(1), b"1") == Created()


# entries that are not to be believed ----------------------------------------------------------------------------------


def test_a_version_whose_entry_expired_is_taken_because_its_file_is_there() -> None:
    world = World()
    store = world.store()
    for version in range(3):
        store.put_if_absent(path(version), b"first")
    world.service.tables["delta_log"].clear()
    for version in range(3):
        assert world.store().put_if_absent(path(version), b"second") == AlreadyExists()
    assert set(world.commits().values()) == {b"first"}
    assert world.service.tables["delta_log"] == {}
    assert world.store().put_if_absent(path(3), b"third") == Created()


def test_an_entry_that_expires_between_the_look_and_the_claim_costs_the_writer_its_commit_and_nobody_elses() -> None:
    world = World()
    world.store().put_if_absent(path(0), b"0")

    def schedule(verb: str) -> Fault | None:
        if verb == "put":
            # Another writer commits, and its entry is gone at once.
            assert world.store().put_if_absent(path(1), b"other") == Created()
            del world.service.tables["delta_log"][ROOT, name(1)]
        return None

    store, _, _ = world.writer(schedule)
    assert store.put_if_absent(path(1), b"ours") == AlreadyExists()
    assert world.commits()[name(1)] == b"other"
    assert names(world.store()) == [name(0), name(1)]
    assert world.store().put_if_absent(path(2), b"2") == Created()


def test_a_table_that_was_deleted_leaves_its_place_to_a_new_one() -> None:
    world = World()
    old = world.store()
    for version in range(5):
        old.put_if_absent(path(version), b"old %d" % version)
    world.put_entry(5, f"{name(5)}.gone", complete=False)
    deleted = [info.path for folder in (f"{LOG}/", f"{LOG}/.tmp/") for info in world.objects.list_from(folder)]
    world.objects.delete(deleted)
    store = world.store()
    with pytest.raises(FileNotFoundError):
        store.list_from(f"{LOG}/")
    for version in range(8):
        assert store.put_if_absent(path(version), b"new %d" % version) == Created()
        assert names(world.store()) == [name(earlier) for earlier in range(version + 1)]
    assert list(world.commits().values()) == [b"new %d" % version for version in range(8)]


def test_an_old_entry_in_the_way_of_a_later_version_is_removed() -> None:
    world = World()
    store = world.store()
    store.put_if_absent(path(0), b"0")
    # A table made anew by a writer that leaves old entries where they are.
    world.put_entry(1, f"{name(1)}.old", complete=True)
    assert store.put_if_absent(path(1), b"1") == Created()
    item = world.service.item(name(1))
    assert item is not None
    assert not item["tempPath"].endswith(".old")
    assert world.commits()[name(1)] == b"1"


def test_a_complete_commit_whose_file_is_gone_is_made_again_of_its_object() -> None:
    world = World()
    store = world.store()
    for version in range(3):
        store.put_if_absent(path(version), b"commit %d" % version)
    world.objects.delete([path(2)])
    assert world.store().put_if_absent(path(2), b"other") == AlreadyExists()
    assert world.commits()[name(2)] == b"commit 2"
    # The one before a version likewise.
    world.objects.delete([path(2)])
    assert world.store().put_if_absent(path(3), b"commit 3") == Created()
    assert world.commits() == {name(version): b"commit %d" % version for version in range(4)}


def test_a_log_whose_files_are_gone_and_whose_objects_are_not_comes_back() -> None:
    world = World()
    store = world.store()
    for version in range(3):
        store.put_if_absent(path(version), b"commit %d" % version)
    world.objects.delete([path(version) for version in range(3)])
    for version in range(3):
        assert world.store().put_if_absent(path(version), b"other") == AlreadyExists()
    assert world.commits() == {name(version): b"commit %d" % version for version in range(3)}


def test_no_table_is_begun_over_the_objects_of_another() -> None:
    world = World()
    store = world.store()
    for version in range(3):
        store.put_if_absent(path(version), b"commit %d" % version)
    world.objects.delete([path(version) for version in range(3)])
    # The first entry expired, so that nobody can tell of what the first file would be made.
    del world.service.tables["delta_log"][ROOT, name(0)]
    with pytest.raises(StorageError, match=rf"{LOG}/\.tmp/{name(1)}.*Restore .*or delete"):
        world.store().put_if_absent(path(0), b"other")
    assert world.commits() == {}
    assert world.service.item(name(1)) is not None


def test_entries_of_a_table_that_another_writer_is_making_stay() -> None:
    world = World()
    world.put_entry(0, f"{name(0)}.theirs", complete=False)
    world.objects.put(f"{LOG}/.tmp/{name(0)}.theirs", b"theirs")
    assert world.store().put_if_absent(path(0), b"ours") == AlreadyExists()
    assert world.commits() == {name(0): b"theirs"}


def test_a_version_after_a_commit_whose_file_is_gone_is_refused() -> None:
    world = World()
    store = world.store()
    for version in range(3):
        store.put_if_absent(path(version), b"x")
    # Of its object it is not made again where the one before it is gone, too.
    world.objects.delete([path(version) for version in range(3)])
    with pytest.raises(StorageError, match="the commit before it was made, and its file is gone"):
        store.put_if_absent(path(3), b"3")
    assert world.commits() == {}
    store = world.store()
    for version in range(3):
        assert store.put_if_absent(path(version), b"y") == AlreadyExists()
    world.objects.delete([path(2), *(info.path for info in world.objects.list_from(f"{LOG}/.tmp/"))])
    with pytest.raises(StorageError, match="the commit before it was made, and its file is gone"):
        store.put_if_absent(path(3), b"3")
    assert world.commits().keys() == {name(0), name(1)}


def test_a_commit_of_which_nothing_is_left_is_an_error_that_names_its_entry() -> None:
    world = World()
    store = world.store()
    store.put_if_absent(path(0), b"0")
    world.put_entry(1, f"{name(1)}.gone", complete=False)
    with pytest.raises(StorageError, match=rf"{name(1)} was committed, and neither .*tablePath is {ROOT}, its fileName {name(1)}"):
        store.list_from(f"{LOG}/")
    with pytest.raises(StorageError, match="neither"):
        store.read(path(1))
    with pytest.raises(StorageError, match="neither"):
        store.put_if_absent(path(2), b"2")


def test_an_entry_that_points_out_of_the_log_is_not_followed() -> None:
    world = World()
    store = world.store()
    store.put_if_absent(path(0), b"0")
    world.put_entry(1, "../../other/secret", complete=False)
    with pytest.raises(StorageError, match=r"no path below .*/_delta_log/\.tmp"):
        store.list_from(f"{LOG}/")


def test_an_item_that_is_no_commit_is_an_error_that_names_the_option() -> None:
    world = World()
    world.service.tables["delta_log"][ROOT, name(0)] = {"tablePath": {"S": ROOT}, "fileName": {"S": name(0)}}
    with pytest.raises(StorageError, match=r"ddb\.table_name"):
        world.store().list_from(f"{LOG}/")


def test_a_writer_that_goes_by_s3_alone_keeps_what_it_put_between_our_steps() -> None:
    world = World()
    world.store().put_if_absent(path(0), b"0")

    def schedule(verb: str) -> Fault | None:
        if verb == "put_if_absent":
            world.objects.put(path(1), b"stranger")
        return None

    store, _, _ = world.writer(schedule)
    assert store.put_if_absent(path(1), b"ours") == AlreadyExists()
    assert world.commits()[name(1)] == b"stranger"
    assert names(world.store()) == [name(0), name(1)]


def test_what_is_deleted_before_it_was_completed_stays_deleted() -> None:
    world = World()
    store = world.store()
    store.put_if_absent(path(0), b"0")
    writer, _, _ = world.writer(Nth(CLAIM + 1, Fault.CRASH_BEFORE))
    with pytest.raises(SimulatedCrash):
        writer.put_if_absent(path(1), b"1")
    store.delete([path(1)])
    assert names(store) == [name(0)]
    assert _read(store, path(1)) is None


def test_a_commit_that_is_deleted_goes_with_the_object_of_which_it_would_be_made_again() -> None:
    world = World()
    store = world.store()
    for version in range(3):
        store.put_if_absent(path(version), b"old")
    store.delete([path(0), path(2), f"{LOG}/other"])
    assert [info.name[:25] for info in world.objects.list_from(f"{LOG}/.tmp/")] == [name(1)]
    assert names(store) == [name(1)]
    assert store.put_if_absent(path(2), b"new") == Created()
    assert world.commits() == {name(1): b"old", name(2): b"new"}


# readers who may not write --------------------------------------------------------------------------------------------


class ReadOnly(MemoryLogStore):
    def put_if_absent(self, path: str, data: bytes) -> PutOutcome:
        raise PermissionError(path)

    def put(self, path: str, data: bytes) -> None:
        raise PermissionError(path)


def test_a_reader_who_may_not_write_sees_a_commit_that_is_not_completed() -> None:
    world = World()
    world.store().put_if_absent(path(0), b"0")
    writer, _, _ = world.writer(Nth(CLAIM + 1, Fault.CRASH_BEFORE))
    with pytest.raises(SimulatedCrash):
        writer.put_if_absent(path(1), b"the commit")
    world.objects.put(f"{LOG}/_last_checkpoint", b"{}")
    objects = ReadOnly()
    objects.__dict__.update(world.objects.__dict__)
    reader = DynamoDBLogStore({}, environment=world.clock.environment(), objects=objects, client=lambda: FakeClient(world.service))
    assert names(reader) == [name(0), name(1), "_last_checkpoint"]
    assert {info.name: info.size for info in reader.list_from(path(1))} == {name(1): len(b"the commit"), "_last_checkpoint": 2}
    assert [info.name for info in reader.list_from(path(2))] == ["_last_checkpoint"]
    assert reader.read(path(1)) == b"the commit"
    assert name(1) not in world.commits()
    assert names(world.store()) == [name(0), name(1), "_last_checkpoint"]


# schemes --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("other", ["s3", "s3n"])
@pytest.mark.parametrize("complete", [True, False])
def test_entries_under_another_scheme_are_an_error_that_names_it_and_the_option(other: str, complete: bool) -> None:
    world = World()
    world.put_entry(4, f"{name(4)}.x", complete=complete, scheme=other)
    store = world.store()
    for ask in (lambda: store.put_if_absent(path(0), b"0"), lambda: store.list_from(f"{LOG}/")):
        with pytest.raises(StoreConfigurationError, match=rf"{other}://bucket/some key/t.*ddb\.scheme to '{other}'"):
            ask()
    assert world.commits() == {}


def test_schemes_are_looked_up_once_per_table() -> None:
    world = World()
    store, client, _ = world.writer(lambda verb: None)
    for version in range(3):
        store.put_if_absent(path(version), b"x")
        list(store.list_from(path(version)))
    asked = [arguments["ExpressionAttributeValues"][":table"]["S"] for verb, arguments in client.calls if verb == "query"]
    assert asked.count("s3://bucket/some key/t") == asked.count("s3n://bucket/some key/t") == 1


def test_a_writer_that_comes_later_by_another_scheme_is_met_within_a_minute() -> None:
    world = World()
    store = world.store()
    assert store.put_if_absent(path(0), b"0") == Created()
    world.put_entry(1, f"{name(1)}.x", complete=True, scheme="s3")
    world.clock.advance_ms(59_000)
    list(store.list_from(path(0)))
    world.clock.advance_ms(2_000)
    for ask in (lambda: store.put_if_absent(path(1), b"1"), lambda: store.list_from(f"{LOG}/")):
        with pytest.raises(StoreConfigurationError, match=r"ddb\.scheme to 's3'"):
            ask()
    assert world.commits() == {name(0): b"0"}
