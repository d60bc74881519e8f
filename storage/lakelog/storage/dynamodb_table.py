"""The DynamoDB table in which writers agree on who commits a version: entries claimed, looked up, completed and removed."""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, TypeAlias

from lakelog.core.errors import StoreConfigurationError
from lakelog.storage.dynamodb_errors import CONDITION_FAILED, TABLE_ABSENT, TABLE_IN_USE, Failure, failure
from lakelog.storage.dynamodb_items import COMPLETE, EXPIRE_TIME, FILE_NAME, TABLE_PATH, TEMP_PATH, CommitEntry
from lakelog.storage.dynamodb_settings import DynamoDBSettings
from lakelog.storage.environment import Environment
from lakelog.storage.s3_redaction import hide, hide_environment, watch_loggers

__all__ = ["Claim", "EntryTable", "Holder", "Unsettled"]

_LOGGER = logging.getLogger(__name__)

# How often a claim is sent, each time after a look whether the one before has arrived.
_CLAIMS = 5
_CLAIM_DELAY_S = 0.1
# A claim whose answer did not come within this time, and the look after it neither, is left to the caller.
_CLAIM_MS = 5_000
_LONGEST_DELAY_S = 2.0
# A new table is there within a few seconds; delta-spark waits twenty.
_TABLE_WAITS = 30
_TABLE_DELAY_S = 1.0
# What DynamoDB says when another writer let the entries of a new table expire a moment ago.
_EXPIRE_ALREADY = ("already enabled", "modified multiple times")
# Just after the digits with which the names of commits begin.
_AFTER_DIGITS = ":"


@dataclass(frozen=True, slots=True)
class Holder:
    """Who has the name.

    Args:
        entry: the caller's own, or the one that was there before; complete where somebody has seen to that.
    """

    entry: CommitEntry


@dataclass(frozen=True, slots=True)
class Unsettled:
    """Nobody can tell whether the claim was, or will be, entered.

    Args:
        cause: what went wrong.
    """

    cause: Exception


Claim: TypeAlias = Holder | Unsettled


class EntryTable:
    """The entries of one DynamoDB table. Safe to share between threads.

    All methods raise, besides what they say: ``StoreConfigurationError`` where settings are wrong, ``StorageError`` where DynamoDB cannot
    be reached, ``OSError`` where it refuses or fails.

    Args:
        settings: which table, and how it is reached.
        environment: sleep, and randomness for the waits.
        client: makes a client of boto3 for DynamoDB that repeats nothing by itself; by default the settings'.
    """

    def __init__(self, settings: DynamoDBSettings, environment: Environment, client: Callable[[], Any] | None = None) -> None:
        self._settings = settings
        self._environment = environment
        self._make_client = client
        self._said_absent = False

    @property
    def place(self) -> str:
        """The table as a message calls it."""
        return self._settings.place

    def get(self, table_path: str, file_name: str) -> CommitEntry | None:
        """The entry of a commit, by a consistent read."""
        answer = self._read("get_item", **_key(table_path, file_name))
        item = answer.get("Item")
        return CommitEntry.from_item(item) if item else None

    def newest(self, table_path: str) -> CommitEntry | None:
        """The entry of a table's newest commit, by a consistent read."""
        found = self._query(table_path, ScanIndexForward=False, Limit=1).get("Items", [])
        return CommitEntry.from_item(found[0]) if found else None

    def entries(self, table_path: str) -> Iterator[CommitEntry]:
        """All entries of a table, in order of version."""
        page: dict[str, Any] = {}
        while True:
            answer = self._query(table_path, **page)
            yield from map(CommitEntry.from_item, answer.get("Items", []))
            if "LastEvaluatedKey" not in answer:
                return
            page = {"ExclusiveStartKey": answer["LastEvaluatedKey"]}

    def claim(self, entry: CommitEntry) -> Claim:
        """Enter a commit unless its name is taken. The entry's ``temp_path`` is nobody else's, by which a claim knows itself again.

        Raises:
            StorageError, OSError: certainly nothing was and will be entered.
        """
        doubt: Exception | None = None
        began_ms = self._environment.now_ms()
        for attempt in range(_CLAIMS):
            if attempt:
                if doubt is not None and self._environment.now_ms() - began_ms > _CLAIM_MS:
                    break
                self._wait(attempt)
            answer = self._once(
                "put_item",
                Item=entry.to_item(),
                ConditionExpression=f"attribute_not_exists({FILE_NAME})",
                ReturnValuesOnConditionCheckFailure="ALL_OLD",
            )
            if not isinstance(answer, Failure):
                return Holder(entry)
            if answer.code == TABLE_ABSENT:
                self.make()
                continue
            if answer.code == CONDITION_FAILED:
                holder = CommitEntry.from_item(answer.item) if answer.item else self._glance(entry)
                if holder is not None:
                    return Holder(holder)
                # It was there and is gone: what expires may go at any time.
                continue
            if answer.unsure:
                doubt = answer.error
                _LOGGER.warning("%s: whether %s was entered is unknown: %s", entry.table_path, entry.file_name, doubt)
            elif not answer.passing or attempt == _CLAIMS - 1:
                if doubt is None:
                    raise answer.error
                break
            if doubt is not None and (holder := self._glance(entry)) is not None:
                return Holder(holder)
        return Unsettled(doubt or OSError(f"{self.place} neither took the entry of {entry.file_name} nor said who has it"))

    def complete(self, entry: CommitEntry, expire_time_s: int) -> None:
        """Say that an entry's file is there. Nothing happens where the entry has gone or its name is another's meanwhile."""
        self._ask(
            "put_item",
            (CONDITION_FAILED, TABLE_ABSENT),
            Item=entry.completed(expire_time_s).to_item(),
            ConditionExpression=f"{TEMP_PATH} = :temp",
            ExpressionAttributeValues={":temp": {"S": entry.temp_path}},
        )

    def remove(self, entry: CommitEntry) -> None:
        """Remove an entry if it is still as it was read."""
        self._ask(
            "delete_item",
            (CONDITION_FAILED, TABLE_ABSENT),
            Key={TABLE_PATH: {"S": entry.table_path}, FILE_NAME: {"S": entry.file_name}},
            ConditionExpression=f"{TEMP_PATH} = :temp AND #complete = :complete",
            ExpressionAttributeNames={"#complete": COMPLETE},
            ExpressionAttributeValues={":temp": {"S": entry.temp_path}, ":complete": {"S": "true" if entry.complete else "false"}},
        )

    def make(self) -> None:
        """Make the table unless it is there, and wait until it serves.

        Raises:
            StoreConfigurationError: it is not there and is not to be made, or does not begin to serve.
        """
        made = False
        for attempt in range(_TABLE_WAITS):
            if attempt:
                self._environment.sleep(_TABLE_DELAY_S)
            status = self._status()
            if status in ("ACTIVE", "UPDATING"):
                if made:
                    self._let_entries_expire()
                    _LOGGER.info("%s was made", self.place)
                return
            if status is None and not made:
                if not self._settings.create_table:
                    raise StoreConfigurationError(self._absent())
                self._create()
                made = True
        raise StoreConfigurationError(
            f"{self.place} was not ready after {_TABLE_WAITS * _TABLE_DELAY_S:.0f} s. Try again, or look at it in AWS' console."
        )

    # requests ---------------------------------------------------------------------------------------------------------

    def _query(self, table_path: str, **arguments: Any) -> dict[str, Any]:
        return self._read(
            "query",
            KeyConditionExpression=f"{TABLE_PATH} = :table AND {FILE_NAME} < :end",
            ExpressionAttributeValues={":table": {"S": table_path}, ":end": {"S": _AFTER_DIGITS}},
            ConsistentRead=True,
            **arguments,
        )

    def _read(self, verb: str, **arguments: Any) -> dict[str, Any]:
        answer = self._ask(verb, (TABLE_ABSENT,), **arguments)
        if not isinstance(answer, Failure):
            return answer
        if not self._settings.create_table:
            raise StoreConfigurationError(self._absent())
        # Readers make no tables: that there are no entries is all they ask.
        if not self._said_absent:
            self._said_absent = True
            _LOGGER.info("%s is not there; it is made by the first commit", self.place)
        return {}

    def _glance(self, entry: CommitEntry) -> CommitEntry | None:
        """Who has the name, if that can be told now."""
        answer = self._once("get_item", **_key(entry.table_path, entry.file_name))
        if isinstance(answer, Failure):
            _LOGGER.info("%s: %s cannot be looked up: %s", entry.table_path, entry.file_name, answer.error)
            return None
        item = answer.get("Item")
        return CommitEntry.from_item(item) if item else None

    def _ask(self, verb: str, refusals: tuple[str, ...], **arguments: Any) -> dict[str, Any] | Failure:
        """Send a request that does no harm when it is done twice, a few times where that may help.

        Returns:
            The answer, or a failure with one of the codes in ``refusals``.
        """
        attempt = 0
        while True:
            answer = self._once(verb, **arguments)
            if not isinstance(answer, Failure) or answer.code in refusals:
                return answer
            attempt += 1
            if not answer.passing or attempt >= answer.attempts:
                # Not within a handler: what the SDK raised holds the request that was signed.
                raise answer.error
            self._wait(attempt)

    def _once(self, verb: str, **arguments: Any) -> dict[str, Any] | Failure:
        """Send one request, once."""
        try:
            client = _shared_client(self._settings) if self._make_client is None else self._make_client()
            answer: dict[str, Any] = getattr(client, verb)(TableName=self._settings.table_name, **arguments)
            return answer
        except Exception as error:
            return failure(error, self.place)

    def _wait(self, attempt: int) -> None:
        self._environment.sleep(min(_LONGEST_DELAY_S, _CLAIM_DELAY_S * 2**attempt) * self._environment.random())

    # the table itself -------------------------------------------------------------------------------------------------

    def _status(self) -> str | None:
        answer = self._ask("describe_table", (TABLE_ABSENT,))
        return None if isinstance(answer, Failure) else str(answer["Table"]["TableStatus"])

    def _create(self) -> None:
        billing: dict[str, Any] = {"BillingMode": "PAY_PER_REQUEST"}
        if self._settings.capacity is not None:
            units = dict(zip(("ReadCapacityUnits", "WriteCapacityUnits"), self._settings.capacity, strict=True))
            billing = {"BillingMode": "PROVISIONED", "ProvisionedThroughput": units}
        _LOGGER.info("%s is not there: it is made, %s", self.place, billing["BillingMode"])
        answer = self._once(
            "create_table",
            AttributeDefinitions=[{"AttributeName": name, "AttributeType": "S"} for name in (TABLE_PATH, FILE_NAME)],
            KeySchema=[{"AttributeName": TABLE_PATH, "KeyType": "HASH"}, {"AttributeName": FILE_NAME, "KeyType": "RANGE"}],
            **billing,
        )
        # Another writer is making it this moment, or it will be seen whether it was made.
        if isinstance(answer, Failure) and answer.code != TABLE_IN_USE and not answer.unsure:
            raise answer.error

    def _let_entries_expire(self) -> None:
        answer = self._once("update_time_to_live", TimeToLiveSpecification={"Enabled": True, "AttributeName": EXPIRE_TIME})
        # Of writers that make the table at once, each says so.
        if isinstance(answer, Failure) and not any(said in str(answer.error) for said in _EXPIRE_ALREADY):
            # Entries that stay cost storage and nothing else.
            _LOGGER.warning("%s was made, but its entries will not expire: %s", self.place, answer.error)

    def _absent(self) -> str:
        return (
            f"{self.place} is not there, and ddb.create_table says not to make it. Correct ddb.table_name or ddb.region, or make it with "
            f"the keys {TABLE_PATH} (HASH, S) and {FILE_NAME} (RANGE, S) and {EXPIRE_TIME} as its TTL attribute."
        )


def _key(table_path: str, file_name: str) -> dict[str, Any]:
    return {"Key": {TABLE_PATH: {"S": table_path}, FILE_NAME: {"S": file_name}}, "ConsistentRead": True}


# Clients are costly to make and safe to share, sessions are neither; a forked process makes its own, as for S3.
_clients: dict[DynamoDBSettings, Any] = {}
_lock = threading.Lock()


def _shared_client(settings: DynamoDBSettings) -> Any:
    with _lock:
        client = _clients.get(settings)
        if client is None:
            client = _clients[settings] = _new_client(settings)
        return client


def _new_client(settings: DynamoDBSettings) -> Any:
    hide_environment()
    hide(settings.connection.secrets())
    session = settings.connection.session()
    client = settings.connection.client(
        "dynamodb", retries=False, endpoint_url=settings.endpoint_url, region=settings.region, session=session
    )
    credentials = session.get_credentials()

    def hide_credentials(**_: object) -> None:
        # Those of a role or of a machine change while the process runs.
        if credentials is not None:
            frozen = credentials.get_frozen_credentials()
            hide(value for value in (frozen.access_key, frozen.secret_key, frozen.token) if value)

    client.meta.events.register("before-sign.dynamodb", hide_credentials)
    # Loggers that came with the client.
    watch_loggers()
    return client


def _forget() -> None:
    """In a process that was forked: another thread of the parent may have held the lock."""
    global _lock
    _lock = threading.Lock()
    _clients.clear()


os.register_at_fork(after_in_child=_forget)
