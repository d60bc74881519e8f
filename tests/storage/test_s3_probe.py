"""What a writer looks at before its first write, and that nobody else does."""

from __future__ import annotations

import logging
import multiprocessing
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from lakelog.core.errors import StorageError, StoreConfigurationError
from lakelog.storage import s3_probe
from lakelog.storage.log_store import Created
from lakelog.storage.s3 import S3LogStore
from tests.storage.fake_s3 import BUSY, LOST_ANSWER, SLOW_DOWN, FakeS3, Fault, Waits, fake_s3

LOG = "s3a://b/t/_delta_log"
KEY = "t/_delta_log/0"
PROBE = "t/_delta_log/.probe-u1"
LOOK = [f"PUT {PROBE}", f"PUT {PROBE}", f"DELETE {PROBE}", "LIST t/_delta_log/.tmp/"]


@pytest.fixture(scope="module")
def address() -> Iterator[FakeS3]:
    with fake_s3() as server:
        yield server


@pytest.fixture
def server(address: FakeS3) -> FakeS3:
    address.reset()
    s3_probe._known.clear()
    s3_probe._looked.clear()
    return address


def store_of(server: FakeS3, waits: Waits, **options: object) -> S3LogStore:
    given = {"key": "planted-key", "secret": "planted-secret", "endpoint_url": server.url, "region": "us-east-1", **options}
    return S3LogStore(given, environment=waits.environment())


def test_a_process_looks_once_at_a_bucket_and_once_at_a_table(server: FakeS3) -> None:
    for number, extra in enumerate([LOOK, [], []]):
        assert store_of(server, Waits()).put_if_absent(f"{LOG}/{number}", b"") == Created()
        assert server.log == [*extra, f"PUT t/_delta_log/{number}"]
    store = store_of(server, Waits())
    for number in range(2):
        assert store.put_if_absent(f"s3://b/other/_delta_log/{number}", b"") == Created()
    assert server.log == ["LIST other/_delta_log/.tmp/", "PUT other/_delta_log/0", "PUT other/_delta_log/1"]
    assert [key for key in server.objects if ".probe-" in key] == []


def test_readers_do_not_look(server: FakeS3) -> None:
    server.objects[KEY] = b"data"
    store = store_of(server, Waits())
    store.read(f"{LOG}/0")
    list(store.list_from(f"{LOG}/"))
    store.put(f"{LOG}/_last_checkpoint", b"")
    store.delete([f"{LOG}/1"])
    assert not any(".probe-" in asked.key or ".tmp" in asked.query.get("prefix", "") for asked in server.asked)


def test_threads_look_once(server: FakeS3) -> None:
    store, barrier = store_of(server, Waits()), threading.Barrier(8)

    def write(number: int) -> object:
        barrier.wait()
        return store.put_if_absent(f"{LOG}/{number}", b"")

    with ThreadPoolExecutor(8) as pool:
        assert list(pool.map(write, range(8))) == [Created()] * 8
    assert [asked.method for asked in server.asked if ".probe-" in asked.key] == ["PUT", "PUT", "DELETE"]


def test_a_server_that_ignores_the_header_is_refused_by_name(server: FakeS3) -> None:
    server.conditional = False
    store = store_of(server, Waits())
    for _ in range(2):
        with pytest.raises(StoreConfigurationError, match=r"created an object that was there already.*logstore\.class=dynamodb"):
            store.put_if_absent(f"{LOG}/0", b"")
        assert [line.partition(" ")[0] for line in server.log] == ["PUT", "PUT", "DELETE"]
    assert server.objects == {}


@pytest.mark.parametrize("number", [0, 1])
@pytest.mark.parametrize(
    "fault", [Fault(status=501, code="NotImplemented"), Fault(status=501), Fault(status=400, code="InvalidArgument")], ids=repr
)
def test_a_server_that_does_not_know_the_header_is_refused_by_name(server: FakeS3, number: int, fault: Fault) -> None:
    server.faults = [*[None] * number, fault]
    with pytest.raises(StoreConfigurationError, match=r"does not know how to create .*logstore\.class=dynamodb"):
        store_of(server, Waits()).put_if_absent(f"{LOG}/0", b"")
    assert server.objects == {}


@pytest.mark.parametrize(
    "faults", [[LOST_ANSWER], [None, LOST_ANSWER], [SLOW_DOWN], [BUSY], [None, BUSY], [None, None, LOST_ANSWER]], ids=repr
)
def test_a_mishap_does_not_matter(server: FakeS3, faults: list[Fault | None]) -> None:
    server.faults = faults
    assert store_of(server, Waits()).put_if_absent(f"{LOG}/0", b"") == Created()
    assert list(server.objects) == [KEY]


def test_what_was_not_proven_is_looked_at_again(server: FakeS3) -> None:
    store = store_of(server, Waits())
    server.faults = [None, Fault(status=403, code="AccessDenied")]
    with pytest.raises(PermissionError):
        store.put_if_absent(f"{LOG}/0", b"")
    assert server.objects == {}
    server.asked.clear()
    assert store.put_if_absent(f"{LOG}/0", b"") == Created()
    assert len(server.log) == 5


def test_a_probe_that_must_stay_is_told(server: FakeS3, caplog: pytest.LogCaptureFixture) -> None:
    server.faults = [None, None, Fault(status=403, code="AccessDenied")]
    with caplog.at_level(logging.WARNING):
        assert store_of(server, Waits()).put_if_absent(f"{LOG}/0", b"") == Created()
    assert f"{LOG}/.probe-u1 stays behind" in caplog.text


def test_a_table_of_dynamodb_writers_is_refused(server: FakeS3) -> None:
    server.objects["t/_delta_log/.tmp/0.json.uuid"] = b""
    store = store_of(server, Waits())
    for _ in range(2):
        with pytest.raises(StorageError, match=r"_delta_log/\.tmp/ shows .*=dynamodb.*allow_dynamodb_writers=true"):
            store.put_if_absent(f"{LOG}/0", b"")
    assert KEY not in server.objects
    assert store.put_if_absent("s3a://b/other/_delta_log/0", b"") == Created()
    del server.objects["t/_delta_log/.tmp/0.json.uuid"]
    assert store.put_if_absent(f"{LOG}/0", b"") == Created()


def test_dynamodb_writers_that_come_later_are_seen_within_a_minute(server: FakeS3) -> None:
    waits, other = Waits(), Waits()
    store = store_of(server, waits)
    assert store.put_if_absent(f"{LOG}/0", b"") == Created()
    server.asked.clear()
    waits.now_ms = other.now_ms = 59_999
    assert store.put_if_absent(f"{LOG}/1", b"") == Created()
    assert store_of(server, other).put_if_absent(f"{LOG}/2", b"") == Created()
    assert server.log == ["PUT t/_delta_log/1", "PUT t/_delta_log/2"]
    waits.now_ms = 60_001
    assert store.put_if_absent(f"{LOG}/3", b"") == Created()
    assert store.put_if_absent(f"{LOG}/4", b"") == Created()
    assert server.log == ["LIST t/_delta_log/.tmp/", "PUT t/_delta_log/3", "PUT t/_delta_log/4"]
    # Another store of the process knows what this one saw.
    other.now_ms = 100_000
    assert store_of(server, other).put_if_absent(f"{LOG}/5", b"") == Created()
    assert server.log == ["PUT t/_delta_log/5"]
    server.objects["t/_delta_log/.tmp/6.json.uuid"] = b""
    waits.now_ms = 130_000
    with pytest.raises(StoreConfigurationError, match=r"\.tmp/ shows"):
        store.put_if_absent(f"{LOG}/6", b"")
    assert "t/_delta_log/6" not in server.objects


def test_a_clock_that_was_put_back_makes_no_look_valid_for_longer(server: FakeS3) -> None:
    waits = Waits(now_ms=10_000_000)
    store = store_of(server, waits)
    assert store.put_if_absent(f"{LOG}/0", b"") == Created()
    waits.now_ms = 0
    server.asked.clear()
    assert store.put_if_absent(f"{LOG}/1", b"") == Created()
    assert server.log == ["LIST t/_delta_log/.tmp/", "PUT t/_delta_log/1"]


def test_a_table_of_dynamodb_writers_is_written_when_told_to(server: FakeS3) -> None:
    server.objects["t/_delta_log/.tmp/0.json.uuid"] = b""
    assert store_of(server, Waits(), allow_dynamodb_writers="true").put_if_absent(f"{LOG}/0", b"") == Created()


_inherited: list[S3LogStore] = []


def _write(number: int) -> bool:
    (store,) = _inherited
    return store.put_if_absent(f"{LOG}/{number}", b"") == Created()


def test_a_process_that_was_forked_makes_its_own_connections(server: FakeS3) -> None:
    _inherited[:] = [store_of(server, Waits())]
    assert _write(0)
    held = s3_probe._lock_of("held by another thread at the fork")
    with held, multiprocessing.get_context("fork").Pool(2) as pool:
        assert pool.map(_write, range(1, 9)) == [True] * 8
    assert _write(9)
    assert len(server.objects) == 10
