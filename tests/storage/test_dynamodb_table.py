"""The DynamoDB table of the store: made, waited for, refused, and what its errors say."""

from __future__ import annotations

from dataclasses import replace

import pytest
from botocore.exceptions import (
    ClientError,
    ConnectionClosedError,
    ConnectTimeoutError,
    EndpointConnectionError,
    InvalidRegionError,
    NoCredentialsError,
    ReadTimeoutError,
)
from botocore.parsers import ResponseParserError

from lakelog.core.errors import StorageError, StoreConfigurationError
from lakelog.storage.dynamodb import DynamoDBLogStore
from lakelog.storage.dynamodb_settings import DynamoDBSettings
from lakelog.storage.log_store import AlreadyExists, Created, Unknown
from lakelog.storage.s3_settings import S3Settings
from lakelog.storage.testing import Fault
from tests.storage.fake_dynamodb import LOG, FakeClient, FakeDynamoDB, World, client_error, path
from tests.storage.fake_s3 import fake_s3


def test_the_table_is_made_on_demand_and_its_entries_expire() -> None:
    world = World(service=FakeDynamoDB())
    world.service.statuses = ["CREATING", "CREATING", "ACTIVE"]
    before_ms = world.clock.now_ms()
    store = world.store(ddb__table_name="locks")
    with pytest.raises(FileNotFoundError):
        store.list_from(f"{LOG}/")
    assert world.service.tables == {}, "a reader made the table"
    assert store.put_if_absent(path(0), b"0") == Created()
    made = world.service.made["locks"]
    assert made["BillingMode"] == "PAY_PER_REQUEST"
    assert made["KeySchema"] == [
        {"AttributeName": "tablePath", "KeyType": "HASH"},
        {"AttributeName": "fileName", "KeyType": "RANGE"},
    ]
    assert {one["AttributeType"] for one in made["AttributeDefinitions"]} == {"S"}
    assert world.service.expiring == {"locks": "expireTime"}
    # Three looks a second apart, and a moment before the claim is repeated.
    assert 3000 <= world.clock.now_ms() - before_ms < 4000


def test_units_that_are_asked_for_are_provisioned() -> None:
    world = World(service=FakeDynamoDB())
    key = "io.delta.storage.S3DynamoDBLogStore.provisionedThroughput.rcu"
    store = DynamoDBLogStore(
        {key: "12"}, environment=world.clock.environment(), objects=world.objects, client=lambda: FakeClient(world.service)
    )
    assert store.put_if_absent(path(0), b"0") == Created()
    made = world.service.made["delta_log"]
    assert made["BillingMode"] == "PROVISIONED"
    assert made["ProvisionedThroughput"] == {"ReadCapacityUnits": 12, "WriteCapacityUnits": 5}


def test_a_table_that_is_not_to_be_made_is_asked_for_by_name() -> None:
    world = World(service=FakeDynamoDB())
    store = world.store(ddb__table_name="locks", ddb__create_table="false", ddb__region="eu-west-1")
    for ask in (lambda: store.put_if_absent(path(0), b"0"), lambda: store.list_from(f"{LOG}/")):
        with pytest.raises(StoreConfigurationError, match=r"table locks \(region eu-west-1\) is not there.*ddb\.create_table.*tablePath"):
            ask()
    assert world.service.tables == {}


def test_a_table_that_never_serves_is_given_up() -> None:
    world = World(service=FakeDynamoDB())
    world.service.statuses = ["CREATING"] * 1000
    before_ms = world.clock.now_ms()
    with pytest.raises(StoreConfigurationError, match="was not ready after 30 s"):
        world.store().put_if_absent(path(0), b"0")
    assert world.clock.now_ms() - before_ms <= 30_000


def test_of_two_writers_that_make_the_table_both_commit() -> None:
    world = World(service=FakeDynamoDB())
    made: list[str] = []

    def schedule(verb: str) -> Fault | None:
        if verb == "create_table" and not made:
            made.append(verb)
            assert world.store().put_if_absent(path(0), b"other") == Created()
        return None

    store, _, _ = world.writer(schedule)
    assert store.put_if_absent(path(0), b"ours") == AlreadyExists()
    assert made
    assert store.put_if_absent(path(1), b"ours") == Created()


# errors ---------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("error", "kind", "says"),
    [
        (client_error("UnrecognizedClientException", "Query"), StoreConfigurationError, r"refused the credentials.*ddb\.key"),
        (client_error("InvalidSignatureException", "Query"), StoreConfigurationError, r"refused the credentials.*secret"),
        (client_error("ExpiredTokenException", "Query"), StoreConfigurationError, "expired"),
        (client_error("AccessDeniedException", "Query"), PermissionError, "dynamodb:GetItem, Query, PutItem"),
        (client_error("ValidationException", "Query"), StoreConfigurationError, r"tablePath \(HASH, S\).*ddb\.table_name"),
        (client_error("InternalServerError", "Query", 500), OSError, "failed"),
        (client_error("ThrottlingException", "Query"), OSError, "busy"),
        (client_error("AccessForbidden", "Query", 403), StoreConfigurationError, r"no DynamoDB.*ddb\.endpoint_url"),
        (NoCredentialsError(), StoreConfigurationError, r"no AWS credentials.*ddb\.profile"),
        (EndpointConnectionError(endpoint_url="http://127.0.0.1:1"), StorageError, r"cannot be reached.*ddb\.region, ddb\.endpoint_url"),
    ],
)
def test_what_dynamodb_refuses_is_one_error_that_names_the_table_and_the_option(error: Exception, kind: type[Exception], says: str) -> None:
    world = World()
    client = FakeClient(world.service)

    def refuse(**arguments: object) -> dict[str, object]:
        raise error

    client.query = refuse  # type: ignore[method-assign,assignment]
    store = DynamoDBLogStore(
        {"ddb.table_name": "locks"}, environment=world.clock.environment(), objects=world.objects, client=lambda: client
    )
    with pytest.raises(kind, match=says) as raised:
        store.list_from(f"{LOG}/")
    assert "DynamoDB table locks (region us-east-1)" in str(raised.value)
    # The SDK's error holds the request that was signed.
    assert raised.value.__cause__ is None
    assert raised.value.__context__ is None


@pytest.mark.parametrize(
    ("error", "kind", "says"),
    [
        (ReadTimeoutError(endpoint_url="http://d.test"), TimeoutError, r"did not answer in time.*ddb\.endpoint_url.*ddb\.region"),
        (ConnectionClosedError(endpoint_url="http://d.test"), ConnectionError, r"broke.*ddb\.endpoint_url.*ddb\.region"),
        (ResponseParserError("Unable to parse response"), ConnectionError, r"does not speak as DynamoDB does.*ddb\.endpoint_url"),
        (InvalidRegionError(region_name="no such"), StoreConfigurationError, r"ddb\.region"),
    ],
)
def test_what_the_way_to_dynamodb_does_is_one_error_too(error: Exception, kind: type[Exception], says: str) -> None:
    world = World()
    client = FakeClient(world.service)

    def fail(**arguments: object) -> dict[str, object]:
        raise error

    client.query = fail  # type: ignore[method-assign,assignment]
    store = DynamoDBLogStore({}, environment=world.clock.environment(), objects=world.objects, client=lambda: client)
    with pytest.raises(kind, match=says) as raised:
        store.list_from(f"{LOG}/")
    assert raised.value.__context__ is None


@pytest.mark.parametrize("verb", ["put_item", "delete_item", "describe_table", "create_table"])
def test_no_error_of_a_write_carries_the_sdks_own(verb: str) -> None:
    world = World(service=FakeDynamoDB(*([] if "table" in verb else ["delta_log"])))
    if verb == "delete_item":
        world.put_entry(0, "0.old", complete=True)
    client = FakeClient(world.service)

    def refuse(**arguments: object) -> dict[str, object]:
        raise client_error("AccessDeniedException", verb)

    setattr(client, verb, refuse)
    store = DynamoDBLogStore({}, environment=world.clock.environment(), objects=world.objects, client=lambda: client)
    with pytest.raises(PermissionError) as raised:
        store.put_if_absent(path(0), b"0")
    seen: BaseException | None = raised.value
    while seen is not None:
        assert not isinstance(seen, ClientError)
        seen = seen.__cause__ or seen.__context__


@pytest.mark.parametrize(
    ("error", "wait"),
    [
        (ReadTimeoutError(endpoint_url="http://d.test"), "read_timeout_s"),
        (ConnectTimeoutError(endpoint_url="http://d.test"), "connect_timeout_s"),
        (ConnectionClosedError(endpoint_url="http://d.test"), ""),
        (client_error("ThrottlingException", "Query"), ""),
    ],
)
def test_what_does_not_answer_is_given_up_within_ten_seconds(error: Exception, wait: str) -> None:
    world = World()
    client = FakeClient(world.service)
    each_s = getattr(DynamoDBSettings.of({}, S3Settings.of({}, environ={}), environ={}).connection, wait) if wait else 0.0
    asked: list[str] = []

    def fail(**arguments: object) -> dict[str, object]:
        asked.append("query")
        raise error

    client.query = fail  # type: ignore[method-assign,assignment]
    # No luck with the waits.
    environment = replace(world.clock.environment(), random=lambda: 1.0)
    store = DynamoDBLogStore({}, environment=environment, objects=world.objects, client=lambda: client)
    before_ms = world.clock.now_ms()
    with pytest.raises((OSError, StorageError)):
        store.list_from(f"{LOG}/")
    assert len(asked) > 1
    assert (world.clock.now_ms() - before_ms) / 1000 + len(asked) * each_s < 9.5


def test_a_claim_of_which_nothing_is_heard_is_unknown_within_ten_seconds() -> None:
    world = World()
    world.store().put_if_absent(path(0), b"0")
    store, client, _ = world.writer(lambda verb: None)
    silent_s = DynamoDBSettings.of({}, S3Settings.of({}, environ={}), environ={}).connection.read_timeout_s

    def silent(**arguments: object) -> dict[str, object]:
        world.clock.sleep(silent_s)
        raise ReadTimeoutError(endpoint_url="http://d.test")

    def claim(**arguments: object) -> dict[str, object]:
        client.get_item = silent  # type: ignore[method-assign,assignment]
        return silent()

    client.put_item = claim  # type: ignore[method-assign,assignment]
    before_ms = world.clock.now_ms()
    outcome = store.put_if_absent(path(1), b"1")
    assert isinstance(outcome, Unknown)
    assert isinstance(outcome.cause, TimeoutError)
    assert world.clock.now_ms() - before_ms < 10_000


def test_a_request_that_fails_for_a_moment_is_sent_again() -> None:
    world = World()
    world.store().put_if_absent(path(0), b"0")
    failed: list[str] = []

    def schedule(verb: str) -> Fault | None:
        if verb in failed:
            return None
        failed.append(verb)
        return Fault.FAIL_BEFORE

    store, client, _ = world.writer(lambda verb: schedule(verb) if verb in ("query", "get_item") else None)
    assert store.put_if_absent(path(1), b"1") == Created()
    assert failed == ["query", "get_item"]
    assert [verb for verb, _ in client.calls].count("get_item") == 2


def test_a_bug_is_not_taken_for_an_answer_of_dynamodb() -> None:
    world = World()
    client = FakeClient(world.service)

    def fail(**arguments: object) -> dict[str, object]:
        raise ZeroDivisionError

    client.query = fail  # type: ignore[method-assign,assignment]
    store = DynamoDBLogStore({}, environment=world.clock.environment(), objects=world.objects, client=lambda: client)
    with pytest.raises(ZeroDivisionError):
        store.list_from(f"{LOG}/")


def test_entries_that_cannot_be_let_expire_are_a_warning_and_no_error(caplog: pytest.LogCaptureFixture) -> None:
    world = World(service=FakeDynamoDB())
    client = FakeClient(world.service)

    def refuse(**arguments: object) -> dict[str, object]:
        raise client_error("AccessDeniedException", "UpdateTimeToLive")

    client.update_time_to_live = refuse  # type: ignore[method-assign,assignment]
    store = DynamoDBLogStore({}, environment=world.clock.environment(), objects=world.objects, client=lambda: client)
    assert store.put_if_absent(path(0), b"0") == Created()
    assert "will not expire" in caplog.text


@pytest.mark.parametrize("said", ["TimeToLive is already enabled", "Time to live has been modified multiple times within a fixed interval"])
def test_entries_that_another_writer_let_expire_are_no_warning(said: str, caplog: pytest.LogCaptureFixture) -> None:
    world = World(service=FakeDynamoDB())
    client = FakeClient(world.service)

    def refuse(**arguments: object) -> dict[str, object]:
        raise client_error("ValidationException", "UpdateTimeToLive", message=said)

    client.update_time_to_live = refuse  # type: ignore[method-assign,assignment]
    store = DynamoDBLogStore({}, environment=world.clock.environment(), objects=world.objects, client=lambda: client)
    assert store.put_if_absent(path(0), b"0") == Created()
    assert not [record for record in caplog.records if record.levelname == "WARNING"]


@pytest.mark.parametrize("verb", ["describe_table", "create_table"])
def test_a_table_that_may_not_be_made_is_an_error_and_nothing_is_committed(verb: str) -> None:
    world = World(service=FakeDynamoDB())
    client = FakeClient(world.service)

    def refuse(**arguments: object) -> dict[str, object]:
        raise client_error("AccessDeniedException", verb)

    setattr(client, verb, refuse)
    store = DynamoDBLogStore({}, environment=world.clock.environment(), objects=world.objects, client=lambda: client)
    with pytest.raises(PermissionError, match="CreateTable, DescribeTable"):
        store.put_if_absent(path(0), b"0")
    with pytest.raises(FileNotFoundError):
        world.objects.read(path(0))


@pytest.mark.parametrize("verb", ["put_item", "delete_item"])
def test_what_is_done_for_order_alone_may_fail(verb: str) -> None:
    world = World()
    store, client, _ = world.writer(lambda asked: None)
    assert store.put_if_absent(path(0), b"0") == Created()
    world.put_entry(1, "1.old", complete=True)
    refused = getattr(client, verb)

    def refuse(**arguments: object) -> dict[str, object]:
        if "tempPath = :temp" in str(arguments.get("ConditionExpression")):
            raise client_error("AccessDeniedException", verb)
        answer: dict[str, object] = refused(**arguments)
        return answer

    setattr(client, verb, refuse)
    if verb == "put_item":
        assert store.put_if_absent(path(1), b"1") == Created()
        entry = world.service.item(path(1).rpartition("/")[2])
        assert entry is not None
        assert entry["complete"] == "false"
        assert [info.path for info in world.store().list_from(path(0))] == [path(0), path(1)]
    else:
        with pytest.raises(PermissionError):
            store.put_if_absent(path(1), b"1")
        with pytest.raises(FileNotFoundError):
            world.objects.read(path(1))


def test_a_claim_is_looked_up_where_the_refusal_does_not_say_who_has_the_name() -> None:
    world = World()
    world.store().put_if_absent(path(0), b"0")
    store, client, _ = world.writer(lambda verb: None)
    put_item = client.put_item
    others = world.store()

    def older(**arguments: object) -> dict[str, object]:
        # DynamoDB said so since 2023.
        arguments.pop("ReturnValuesOnConditionCheckFailure", None)
        others.put_if_absent(path(1), b"other")
        return put_item(**arguments)

    client.put_item = older  # type: ignore[method-assign]
    assert store.put_if_absent(path(1), b"ours") == AlreadyExists()
    assert world.objects.read(path(1)) == b"other"


def test_a_client_of_the_settings_asks_where_they_say(monkeypatch: pytest.MonkeyPatch) -> None:
    for variable in ("AWS_PROFILE", "AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_DYNAMODB"):
        monkeypatch.delenv(variable, raising=False)
    with fake_s3() as server:
        options = {"ddb.endpoint_url": server.url, "key": "AKIAPLANTED", "secret": "planted"}
        store = DynamoDBLogStore(options, environment=World().clock.environment(), objects=World().objects)
        with pytest.raises((StorageError, OSError), match=rf"\({server.url}\)") as raised:
            store.list_from(f"{LOG}/")
        assert server.asked
        assert {asked.method for asked in server.asked} == {"POST"}
    assert "PLANTED" not in str(raised.value)
