"""DynamoDB in a dictionary, asked as a client of boto3 is, with the faults of networks and servers; and lakelog's store over it."""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from botocore.exceptions import ClientError, ReadTimeoutError

from lakelog.storage.dynamodb import DynamoDBLogStore
from lakelog.storage.log_store import LogStore
from lakelog.storage.testing import Fault, FaultInjectingLogStore, MemoryLogStore, SimulatedCrash, VirtualClock

Item = Mapping[str, Mapping[str, str]]
Request = Callable[[], dict[str, Any]]

_NOT_EXISTS = re.compile(r"attribute_not_exists\((\w+)\)")
_EQUALS = re.compile(r"(#?\w+) = (:\w+)")
_KEYS = ("tablePath", "fileName")


class FakeDynamoDB:
    """The service: tables by name, each a dictionary of items by key.

    Args:
        tables: the names of those that are there.
    """

    def __init__(self, *tables: str) -> None:
        self.tables: dict[str, dict[tuple[str, str], Item]] = {name: {} for name in tables}
        self.made: dict[str, dict[str, Any]] = {}
        self.expiring: dict[str, str] = {}
        self.statuses: list[str] = []
        self.lock = threading.RLock()

    def item(self, file_name: str, *, table: str = "delta_log") -> dict[str, str] | None:
        """The plain values of the one item of a file, whatever its table path."""
        found = [item for (_, name), item in self.tables[table].items() if name == file_name]
        assert len(found) < 2, found
        return {name: next(iter(value.values())) for name, value in found[0].items()} if found else None


class FakeClient:
    """One client of the service.

    Args:
        service: what it asks.
        fault: asked before each call for what happens to it, given the call's name.
    """

    def __init__(self, service: FakeDynamoDB, fault: Callable[[str], Fault | None] = lambda verb: None) -> None:
        self.service = service
        self.calls: list[tuple[str, dict[str, Any]]] = []
        self.under_way: list[Request] = []
        self._fault = fault

    def settle(self) -> None:
        """Deliver what is still under way."""
        due, self.under_way = self.under_way, []
        for request in due:
            try:
                request()
            except ClientError:
                continue

    def put_item(self, **arguments: Any) -> dict[str, Any]:
        def request() -> dict[str, Any]:
            items, key = self._items(arguments, "PutItem"), _key(arguments["Item"])
            self._check(arguments, items.get(key), "PutItem")
            items[key] = arguments["Item"]
            return {}

        return self._call("put_item", arguments, request)

    def delete_item(self, **arguments: Any) -> dict[str, Any]:
        def request() -> dict[str, Any]:
            items, key = self._items(arguments, "DeleteItem"), _key(arguments["Key"])
            self._check(arguments, items.get(key), "DeleteItem")
            items.pop(key, None)
            return {}

        return self._call("delete_item", arguments, request)

    def get_item(self, **arguments: Any) -> dict[str, Any]:
        def request() -> dict[str, Any]:
            found = self._items(arguments, "GetItem").get(_key(arguments["Key"]))
            return {"Item": found} if found else {}

        assert arguments["ConsistentRead"] is True
        return self._call("get_item", arguments, request)

    def query(self, **arguments: Any) -> dict[str, Any]:
        def request() -> dict[str, Any]:
            values = arguments["ExpressionAttributeValues"]
            items = self._items(arguments, "Query")
            keys = sorted(
                (key for key in items if key[0] == values[":table"]["S"] and key[1] < values[":end"]["S"]),
                reverse=not arguments.get("ScanIndexForward", True),
            )
            if start := arguments.get("ExclusiveStartKey"):
                keys = [key for key in keys if key > _key(start)]
            # Pages of two, so that whoever forgets the next page is found out.
            page = keys[: arguments.get("Limit", 2)]
            answer: dict[str, Any] = {"Items": [items[key] for key in page]}
            if len(page) < len(keys):
                answer["LastEvaluatedKey"] = {name: {"S": part} for name, part in zip(_KEYS, page[-1], strict=True)}
            return answer

        assert arguments["ConsistentRead"] is True
        return self._call("query", arguments, request)

    def describe_table(self, **arguments: Any) -> dict[str, Any]:
        def request() -> dict[str, Any]:
            self._items(arguments, "DescribeTable")
            status = self.service.statuses.pop(0) if self.service.statuses else "ACTIVE"
            return {"Table": {"TableStatus": status}}

        return self._call("describe_table", arguments, request)

    def create_table(self, **arguments: Any) -> dict[str, Any]:
        def request() -> dict[str, Any]:
            name = arguments["TableName"]
            if name in self.service.tables:
                raise client_error("ResourceInUseException", "CreateTable")
            self.service.tables[name] = {}
            self.service.made[name] = arguments
            return {}

        return self._call("create_table", arguments, request)

    def update_time_to_live(self, **arguments: Any) -> dict[str, Any]:
        def request() -> dict[str, Any]:
            assert arguments["TimeToLiveSpecification"]["Enabled"] is True
            self.service.expiring[arguments["TableName"]] = arguments["TimeToLiveSpecification"]["AttributeName"]
            return {}

        return self._call("update_time_to_live", arguments, request)

    def _items(self, arguments: Mapping[str, Any], operation: str) -> dict[tuple[str, str], Item]:
        try:
            return self.service.tables[arguments["TableName"]]
        except KeyError:
            raise client_error("ResourceNotFoundException", operation) from None

    def _check(self, arguments: Mapping[str, Any], found: Item | None, operation: str) -> None:
        condition = arguments.get("ConditionExpression")
        if condition is None or all(_holds(part, arguments, found) for part in condition.split(" AND ")):
            return
        error = client_error("ConditionalCheckFailedException", operation)
        if arguments.get("ReturnValuesOnConditionCheckFailure") == "ALL_OLD" and found:
            error.response["Item"] = found  # type: ignore[typeddict-unknown-key]
        raise error

    def _call(self, verb: str, arguments: dict[str, Any], work: Request) -> dict[str, Any]:
        def request() -> dict[str, Any]:
            with self.service.lock:
                return work()

        self.calls.append((verb, arguments))
        fault = self._fault(verb)
        match fault:
            case None:
                return request()
            case Fault.CRASH_BEFORE:
                raise SimulatedCrash(verb)
            case Fault.CRASH_AFTER:
                _try(request)
                raise SimulatedCrash(verb)
            case Fault.FAIL_BEFORE:
                raise client_error("ThrottlingException", verb)
            case Fault.FAIL_AFTER:
                _try(request)
                raise client_error("InternalServerError", verb, 500)
            case Fault.LOST_REQUEST:
                raise ReadTimeoutError(endpoint_url="http://dynamodb.test")
            case Fault.LOST_ANSWER:
                _try(request)
                raise ReadTimeoutError(endpoint_url="http://dynamodb.test")
            case Fault.LATE:
                self.under_way.append(request)
                raise ReadTimeoutError(endpoint_url="http://dynamodb.test")
            case Fault.DUPLICATE:
                answer = request()
                self.under_way.append(request)
                return answer
            case _:
                raise AssertionError(f"a client of DynamoDB has no fault {fault}")


ROOT = "s3a://bucket/some key/t"
LOG = f"{ROOT}/_delta_log"


def name(version: int) -> str:
    return f"{version:020d}.json"


def path(version: int) -> str:
    return f"{LOG}/{name(version)}"


@dataclass
class World:
    """S3 and DynamoDB, and a clock."""

    objects: MemoryLogStore = field(default_factory=MemoryLogStore)
    service: FakeDynamoDB = field(default_factory=lambda: FakeDynamoDB("delta_log"))
    clock: VirtualClock = field(default_factory=VirtualClock)

    def store(self, **options: object) -> DynamoDBLogStore:
        return DynamoDBLogStore(
            {key.replace("__", "."): value for key, value in options.items()},
            environment=self.clock.environment(),
            objects=self.objects,
            client=lambda: FakeClient(self.service),
        )

    def writer(self, fault: Callable[[str], Fault | None]) -> tuple[DynamoDBLogStore, FakeClient, FaultInjectingLogStore]:
        """A store of which every request, to S3 or DynamoDB, meets what ``fault`` says."""
        client = FakeClient(self.service, fault)
        objects = FaultInjectingLogStore(self.objects, lambda call: fault(call.verb), clock=self.clock)
        store = DynamoDBLogStore({}, environment=self.clock.environment(), objects=objects, client=lambda: client)
        return store, client, objects

    def put_entry(self, version: int, temp: str, *, complete: bool, scheme: str = "s3a") -> None:
        """What another writer entered."""
        item = {
            "tablePath": {"S": f"{scheme}://bucket/some key/t"},
            "fileName": {"S": name(version)},
            "tempPath": {"S": f".tmp/{temp}"},
            "complete": {"S": "true" if complete else "false"},
        }
        if complete:
            item["expireTime"] = {"N": str(self.clock.now_ms() // 1000 + 86_400)}
        self.service.tables["delta_log"][item["tablePath"]["S"], name(version)] = item

    def commits(self) -> dict[str, bytes]:
        """The table's commit files as they are in S3."""
        try:
            infos = list(self.objects.list_from(f"{LOG}/"))
        except FileNotFoundError:
            return {}
        return {info.name: self.objects.read(info.path) for info in infos}


def names(store: LogStore) -> list[str]:
    return [info.name for info in store.list_from(f"{LOG}/")]


def client_error(code: str, operation: str, status: int = 400, message: str = "as a test says") -> ClientError:
    """An answer that is an error."""
    return ClientError({"Error": {"Code": code, "Message": message}, "ResponseMetadata": {"HTTPStatusCode": status}}, operation)  # type: ignore[typeddict-item]


def _try(request: Request) -> None:
    try:
        request()
    except ClientError:
        return


def _key(item: Mapping[str, Mapping[str, str]]) -> tuple[str, str]:
    return item["tablePath"]["S"], item["fileName"]["S"]


def _holds(condition: str, arguments: Mapping[str, Any], found: Item | None) -> bool:
    if match := _NOT_EXISTS.fullmatch(condition):
        return found is None or match[1] not in found
    match = _EQUALS.fullmatch(condition)
    assert match, condition
    name = arguments.get("ExpressionAttributeNames", {}).get(match[1], match[1])
    return found is not None and found.get(name) == arguments["ExpressionAttributeValues"][match[2]]
