"""The stores of S3 under the conformance suite, on real servers: straight, and over a network that loses and slows what it carries."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest

from integration.dying import dying_stores
from integration.proxy import Fault, FaultProxy, Plan, Rule
from integration.servers import DynamoDBLocal, MinIO
from lakelog.storage.dynamodb import DynamoDBLogStore
from lakelog.storage.log_store import LogStore
from lakelog.storage.s3 import S3LogStore
from lakelog.storage.testing import LogStoreConformance

# One request in so many meets each fault. DynamoDB's SDK repeats a request twice, and then gives it up.
_SHARE = {"endpoint_url": 0.02, "ddb.endpoint_url": 0.002}


class OnMinIO(LogStoreConformance):
    """In a bucket of the class' own, a folder for each test."""

    store: Callable[[dict[str, object]], LogStore]
    options: dict[str, object]
    scheme = "s3a"
    # A request takes milliseconds where a local file takes microseconds.
    rounds = 10
    files_per_process = 15

    @pytest.fixture(autouse=True)
    def place(self, request: pytest.FixtureRequest, bucket: str) -> None:
        self.bucket = bucket

    def make_folder(self) -> str:
        return f"{self.scheme}://{self.bucket}/some tables/t/_delta_log"

    def make_store(self) -> LogStore:
        return self.store_factory()()

    def store_factory(self) -> Callable[[], LogStore]:
        return functools.partial(type(self).store, self.options)

    def crashing_stores(self) -> Iterator[LogStore]:
        return dying_stores(self.make_store)


class TestS3LogStore(OnMinIO):
    store = S3LogStore

    @pytest.fixture(autouse=True)
    def connection(self, minio: MinIO) -> None:
        self.options = minio.options()


class TestS3LogStoreByTheOtherScheme(TestS3LogStore):
    scheme = "s3"
    # They depend least on how a path is written.
    test_of_processes_that_race_exactly_one_creates_the_file = None
    test_killed_writers_leave_whole_files_and_every_acknowledged_one = None
    test_what_one_process_writes_another_lists_and_reads = None
    test_a_listing_longer_than_a_page_is_whole = None


class TestDynamoDBLogStore(OnMinIO):
    store = DynamoDBLogStore

    @pytest.fixture(autouse=True)
    def connection(self, minio: MinIO, dynamodb: DynamoDBLocal) -> None:
        self.options = {**minio.options(), **dynamodb.options()}


def bad_network(share: float, seed: int) -> Plan:
    """Answers lost, connections reset, servers that are busy, bodies cut off: what a repetition gets over.

    Not here is what arrives twice or late: the second creation of a file by the same writer is refused like anybody's, and it is the
    commit's identity that tells whose file it is, which the suite does not have.
    """
    return Plan(
        Rule(Fault.LOSE_ANSWER, kind="PUT commit", probability=2 * share),
        Rule(Fault.LOSE_ANSWER, probability=share),
        Rule(Fault.RESET_BEFORE, probability=share),
        Rule(Fault.RESET_IN_BODY, method="PUT", probability=share),
        Rule(Fault.RESET_AFTER, probability=share),
        Rule(Fault.SLOW_DOWN, probability=share),
        Rule(Fault.TRUNCATE, method="GET", probability=share),
        Rule(Fault.SLOW_BODY, method="GET", probability=share, seconds=0.02),
        seed=seed,
    )


class OverABadNetwork:
    """A proxy before every server."""

    @pytest.fixture(autouse=True)
    def network(self, connection: None, request: pytest.FixtureRequest) -> Iterator[None]:
        with ExitStack() as stack:
            for name in _SHARE.keys() & self.options.keys():
                proxy = FaultProxy(str(self.options[name]), bad_network(_SHARE[name], self.seed))
                self.options[name] = stack.enter_context(proxy).url
            yield


class TestS3LogStoreOverABadNetwork(OverABadNetwork, TestS3LogStore):
    pass


class TestDynamoDBLogStoreOverABadNetwork(OverABadNetwork, TestDynamoDBLogStore):
    pass
