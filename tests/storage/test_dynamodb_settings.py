"""The options of the DynamoDB store, and its files on servers that know conditions and on those that do not."""

from __future__ import annotations

import pickle
from collections.abc import Iterator, Mapping

import pytest

from lakelog.core.errors import StoreConfigurationError
from lakelog.storage.dynamodb import DynamoDBLogStore
from lakelog.storage.dynamodb_objects import CommitObjects
from lakelog.storage.dynamodb_settings import DynamoDBSettings
from lakelog.storage.dynamodb_table import _new_client
from lakelog.storage.log_store import AlreadyExists, Created
from lakelog.storage.registry import log_store_for
from lakelog.storage.s3_settings import S3Settings
from tests.storage.fake_dynamodb import FakeClient, FakeDynamoDB, name
from tests.storage.fake_s3 import FakeS3, Fault, Waits, fake_s3, forget

DELTA = "io.delta.storage.S3DynamoDBLogStore."
LOG = "s3a://bucket/t/_delta_log"


def settings_of(options: Mapping[str, object]) -> DynamoDBSettings:
    return DynamoDBSettings.of(options, S3Settings.of(options, environ={}), environ={})


def test_the_defaults_are_delta_sparks() -> None:
    settings = settings_of({"region": "eu-west-1"})
    assert (settings.table_name, settings.region, settings.ttl_s, settings.scheme) == ("delta_log", "us-east-1", 86_400, "s3a")
    assert settings.create_table
    assert settings.capacity is None
    assert settings.endpoint_url is None


def test_delta_sparks_names_say_what_lakelogs_do() -> None:
    theirs = settings_of(
        {
            f"{DELTA}ddb.tableName": "locks",
            f"{DELTA}ddb.region": "eu-west-1",
            f"{DELTA}ddb.ttl": "3600",
            f"{DELTA}provisionedThroughput.rcu": "7",
            f"{DELTA}provisionedThroughput.wcu": "8",
            f"{DELTA}read.retries": "5",
        }
    )
    ours = settings_of({"ddb.table_name": "locks", "ddb.region": "eu-west-1", "ddb.ttl": 3600, "ddb.rcu": 7, "ddb.wcu": "8"})
    assert theirs == ours
    assert ours.capacity == (7, 8)


def test_one_thing_said_twice_alike_is_fine() -> None:
    assert settings_of({"ddb.table_name": "locks", f"{DELTA}ddb.tableName": "locks"}).table_name == "locks"


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"ddb.table_name": "a-b", f"{DELTA}ddb.tableName": "c-d"}, r"disagree.*ddb\.table_name and .*ddb\.tableName"),
        ({"ddb.tablename": "locks"}, r"no option ddb\.tablename; did you mean ddb\.table_name"),
        ({f"{DELTA}ddb.tablename": "locks"}, r"did you mean io\.delta\.storage\.S3DynamoDBLogStore\.ddb\.tableName"),
        ({"dynamodb.table": "locks"}, r"no option dynamodb\.table"),
        ({"ddb.table_name": "no spaces"}, "3 to 255 letters"),
        ({"ddb.ttl": "-1"}, r"ddb\.ttl .* whole number from 0 on, not '-1'"),
        ({"ddb.rcu": "0"}, "whole number from 1 on"),
        ({"ddb.scheme": "gs"}, "one of s3a, s3, s3n, not 'gs'"),
        ({"ddb.create_table": "perhaps"}, r"ddb\.create_table .* true or false"),
        ({"ddb.endpoint_url": "localhost:8000"}, "a URL of a scheme, a host and a port"),
        ({"ddb.key": "planted"}, r"ddb\.key and ddb\.secret go together"),
        ({"ddb.key": "planted", "ddb.secret": "planted", "ddb.profile": "x"}, "two identities"),
        ({f"{DELTA}credentials.provider": "com.example.Mine"}, r"com\.example\.Mine, which lakelog cannot run, since it is Java"),
        ({"anon": True}, r"anonymously.*ddb\.key"),
    ],
)
def test_options_that_make_no_sense_are_errors_that_name_them(options: Mapping[str, object], says: str) -> None:
    with pytest.raises(StoreConfigurationError, match=says) as raised:
        settings_of(options)
    assert "planted" not in str(raised.value)


@pytest.mark.parametrize("endpoint", ["http://[::1", "http://h:x", "ftp://h:1", "http://h:1/?a=b"])
def test_an_endpoint_that_is_none_is_refused(endpoint: str) -> None:
    with pytest.raises(StoreConfigurationError, match="a URL of a scheme, a host and a port"):
        settings_of({"ddb.endpoint_url": endpoint})


def test_an_option_that_is_empty_was_not_given() -> None:
    assert settings_of({"ddb.table_name": "", "ddb.endpoint_url": None}) == settings_of({})


def test_an_endpoint_with_a_password_is_refused_without_showing_it() -> None:
    with pytest.raises(StoreConfigurationError, match="without user, password and query") as raised:
        settings_of({"ddb.endpoint_url": "http://user:planted@127.0.0.1:8000"})
    assert "planted" not in str(raised.value)


def test_who_asks_s3_asks_dynamodb_unless_the_options_say_otherwise() -> None:
    s3 = {"key": "s3-key", "secret": "s3-secret", "token": "s3-token"}
    assert settings_of(s3).connection.credentials == S3Settings.of(s3, environ={}).credentials
    own = settings_of({**s3, "ddb.key": "own-key", "ddb.secret": "own-secret"}).connection
    assert (own.access_key, own.secret_key, own.session_token) == ("own-key", "own-secret", None)
    assert settings_of({**s3, "ddb.profile": "locks"}).connection.profile == "locks"
    assert not settings_of({**s3, "ddb.profile": "locks"}).connection.credentials


@pytest.mark.parametrize(
    "provider",
    [
        "com.amazonaws.auth.DefaultAWSCredentialsProviderChain",
        "com.amazonaws.auth.profile.ProfileCredentialsProvider",
        "com.amazonaws.auth.EC2ContainerCredentialsProviderWrapper",
        "software.amazon.awssdk.auth.credentials.DefaultCredentialsProvider",
        "software.amazon.awssdk.auth.credentials.WebIdentityTokenFileCredentialsProvider",
    ],
)
def test_the_sdks_own_providers_mean_the_credentials_of_the_machine(provider: str) -> None:
    settings = settings_of({"key": "s3-key", "secret": "s3-secret", f"{DELTA}credentials.provider": provider})
    assert not settings.connection.credentials


def test_s3s_own_server_says_nothing_of_the_way_to_aws() -> None:
    settings = settings_of(
        {"endpoint_url": "http://minio:9000", "verify": "/minio.pem", "use_ssl": False, "addressing_style": "path", "region": "eu-west-1"}
    )
    assert settings.endpoint_url is None
    assert settings.connection.verify is True
    assert settings.connection.use_ssl
    assert settings.connection.region == "us-east-1"


def test_an_endpoint_of_all_services_is_none_of_dynamodb() -> None:
    """Whoever sets AWS_ENDPOINT_URL means an S3 of their own, which knows nothing of DynamoDB."""
    s3 = {"key": "key", "secret": "secret"}
    environ = {"AWS_ENDPOINT_URL": "http://minio:9000", "AWS_ENDPOINT_URL_S3": "http://minio:9000"}
    settings = DynamoDBSettings.of(s3, S3Settings.of(s3, environ=environ), environ=environ)
    assert settings.endpoint_url is None
    with pytest.MonkeyPatch.context() as patch:
        for variable, value in environ.items():
            patch.setenv(variable, value)
        patch.delenv("AWS_ENDPOINT_URL_DYNAMODB", raising=False)
        assert _new_client(settings).meta.endpoint_url == "https://dynamodb.us-east-1.amazonaws.com"


def test_an_endpoint_of_dynamodb_may_be_a_variable() -> None:
    environ = {"AWS_ENDPOINT_URL": "http://minio:9000", "AWS_ENDPOINT_URL_DYNAMODB": "http://locks:8000"}
    assert DynamoDBSettings.of({}, S3Settings(), environ=environ).endpoint_url == "http://locks:8000"
    assert DynamoDBSettings.of({"ddb.endpoint_url": "http://own:1"}, S3Settings(), environ=environ).endpoint_url == "http://own:1"
    ignored = {**environ, "AWS_IGNORE_CONFIGURED_ENDPOINT_URLS": "true"}
    assert DynamoDBSettings.of({}, S3Settings(), environ=ignored).endpoint_url is None
    with pytest.raises(StoreConfigurationError, match=r"AWS_ENDPOINT_URL_DYNAMODB .* a URL of a scheme"):
        DynamoDBSettings.of({}, S3Settings(), environ={"AWS_ENDPOINT_URL_DYNAMODB": "locks:8000"})


def test_neither_settings_nor_stores_show_or_pickle_secrets() -> None:
    options = {"key": "AKIAPLANTED", "secret": "planted-secret", "token": "planted-token", "ddb.table_name": "locks", "ddb.scheme": "s3"}
    own = {"ddb.key": "AKIAPLANTED2", "ddb.secret": "planted-own", "ddb.token": "planted-own-token"}
    for given in (options, {**options, **own}):
        settings, store = settings_of(given), DynamoDBLogStore(given)
        for text in (repr(settings), str(settings), repr(store), str(store)):
            assert "lanted" not in text.lower()
        for value in (settings, store):
            assert b"lanted" not in pickle.dumps(value).lower()
        again = pickle.loads(pickle.dumps(store))
        assert isinstance(again, DynamoDBLogStore)
        assert "table_name='locks'" in repr(again)
        assert "scheme='s3'" in repr(again)


def test_the_registry_gives_the_store_by_delta_sparks_conf() -> None:
    conf = {
        "spark.delta.logStore.s3a.impl": "io.delta.storage.S3DynamoDBLogStore",
        f"spark.{DELTA}ddb.tableName": "locks",
        "spark.lakelog.s3a.ddb.scheme": "s3",
    }
    store = log_store_for("s3a://bucket/t", conf)
    assert isinstance(store, DynamoDBLogStore)
    assert "table_name='locks'" in repr(store)
    assert "scheme='s3'" in repr(store)


# the files ------------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def address() -> Iterator[FakeS3]:
    with fake_s3() as server:
        yield server


@pytest.fixture
def server(address: FakeS3) -> FakeS3:
    address.reset()
    forget(address.url)
    return address


def store_over(server: FakeS3, service: FakeDynamoDB) -> DynamoDBLogStore:
    options = {"endpoint_url": server.url, "key": "key", "secret": "secret"}
    return DynamoDBLogStore(options, environment=Waits().environment(), client=lambda: FakeClient(service))


def test_an_uncontended_commit_is_a_look_a_put_and_a_conditional_put(server: FakeS3) -> None:
    store = store_over(server, FakeDynamoDB("delta_log"))
    assert store.put_if_absent(f"{LOG}/{name(0)}", b"0") == Created()
    server.asked.clear()
    assert store.put_if_absent(f"{LOG}/{name(1)}", b"1") == Created()
    assert [asked.method for asked in server.asked] == ["GET", "PUT", "PUT"]
    look, temporary, commit = server.asked
    assert look.query["prefix"] == "t/_delta_log/"
    assert temporary.key.startswith(f"t/_delta_log/.tmp/{name(1)}.")
    assert commit.key == f"t/_delta_log/{name(1)}"
    headers = {key.lower(): value for key, value in commit.headers.items()}
    assert headers["if-none-match"] == "*"


def test_a_server_that_knows_no_condition_serves_all_the_same(server: FakeS3) -> None:
    server.befalls = lambda asked: (
        Fault(status=501, code="NotImplemented") if any(key.lower() == "if-none-match" for key in asked.headers) else None
    )
    service = FakeDynamoDB("delta_log")
    first, second = store_over(server, service), store_over(server, service)
    for version in range(0, 6, 2):
        assert first.put_if_absent(f"{LOG}/{name(version)}", b"first") == Created()
        assert second.put_if_absent(f"{LOG}/{name(version)}", b"second") == AlreadyExists()
        assert second.put_if_absent(f"{LOG}/{name(version + 1)}", b"second") == Created()
        assert first.put_if_absent(f"{LOG}/{name(version + 1)}", b"first") == AlreadyExists()
    assert [info.name for info in first.list_from(f"{LOG}/")] == [name(version) for version in range(6)]
    assert [first.read(f"{LOG}/{name(version)}") for version in range(6)] == [b"first", b"second"] * 3


def test_a_server_that_ignores_conditions_serves_all_the_same(server: FakeS3) -> None:
    server.conditional = False
    service = FakeDynamoDB("delta_log")
    first, second = store_over(server, service), store_over(server, service)
    assert first.put_if_absent(f"{LOG}/{name(0)}", b"first") == Created()
    assert second.put_if_absent(f"{LOG}/{name(0)}", b"second") == AlreadyExists()
    assert first.read(f"{LOG}/{name(0)}") == b"first"
    # What no entry decides needs a server that does.
    with pytest.raises(StoreConfigurationError, match="replace each other"):
        first.put_if_absent(f"{LOG}/other", b"1")


def test_a_commit_of_a_stranger_stays_on_a_server_that_ignores_conditions(server: FakeS3) -> None:
    server.conditional = False
    objects = CommitObjects({"endpoint_url": server.url, "key": "key", "secret": "secret"}, environment=Waits().environment())
    server.objects[f"t/_delta_log/{name(0)}"] = b"stranger"
    assert objects.put_if_absent(f"{LOG}/{name(0)}", b"ours") == AlreadyExists()
    assert objects.read(f"{LOG}/{name(0)}") == b"stranger"
    assert objects.put_if_absent(f"{LOG}/{name(1)}", b"ours") == Created()
    # What was tried out is gone, and is remembered.
    assert server.objects == {f"t/_delta_log/{name(0)}": b"stranger", f"t/_delta_log/{name(1)}": b"ours"}
    server.asked.clear()
    assert objects.put_if_absent(f"{LOG}/{name(1)}", b"again") == AlreadyExists()
    assert [asked.method for asked in server.asked] == ["HEAD"]


def test_conditions_are_tried_out_once_before_the_first_commit(server: FakeS3) -> None:
    objects = CommitObjects({"endpoint_url": server.url, "key": "key", "secret": "secret"}, environment=Waits().environment())
    assert objects.put_if_absent(f"{LOG}/{name(0)}", b"0") == Created()
    assert [(asked.method, "/.probe-" in asked.key) for asked in server.asked] == [
        ("PUT", True),
        ("PUT", True),
        ("DELETE", True),
        ("PUT", False),
    ]
    server.asked.clear()
    again = CommitObjects({"endpoint_url": server.url, "key": "key", "secret": "secret"}, environment=Waits().environment())
    assert again.put_if_absent(f"{LOG}/{name(0)}", b"1") == AlreadyExists()
    assert [asked.method for asked in server.asked] == ["PUT"]


def test_a_server_that_forgets_conditions_serves_all_the_same(server: FakeS3) -> None:
    """Of a cluster, one member may be older than the others."""
    objects = CommitObjects({"endpoint_url": server.url, "key": "key", "secret": "secret"}, environment=Waits().environment())
    assert objects.put_if_absent(f"{LOG}/{name(0)}", b"0") == Created()
    server.befalls = lambda asked: (
        Fault(status=501, code="NotImplemented") if any(key.lower() == "if-none-match" for key in asked.headers) else None
    )
    assert objects.put_if_absent(f"{LOG}/{name(0)}", b"1") == AlreadyExists()
    assert objects.put_if_absent(f"{LOG}/{name(1)}", b"1") == Created()
    assert objects.read(f"{LOG}/{name(0)}") == b"0"


def test_a_failure_of_the_try_says_nothing_of_conditions(server: FakeS3) -> None:
    objects = CommitObjects({"endpoint_url": server.url, "key": "key", "secret": "secret"}, environment=Waits().environment())
    server.objects[f"t/_delta_log/{name(0)}"] = b"0"
    server.befalls = lambda asked: Fault(status=503, code="SlowDown") if "/.probe-" in asked.key else None
    with pytest.raises(OSError, match="SlowDown"):
        objects.put_if_absent(f"{LOG}/{name(0)}", b"1")
    server.befalls = lambda asked: None
    server.asked.clear()
    assert objects.put_if_absent(f"{LOG}/{name(0)}", b"1") == AlreadyExists()
    assert [asked.method for asked in server.asked] == ["PUT", "PUT", "DELETE", "PUT"]


def test_what_is_wrong_with_a_put_is_not_taken_for_a_server_without_conditions(server: FakeS3) -> None:
    objects = CommitObjects({"endpoint_url": server.url, "key": "key", "secret": "secret"}, environment=Waits().environment())
    server.objects[f"t/_delta_log/{name(0)}"] = b"0"
    server.faults = [Fault(status=403, code="InvalidAccessKeyId")]
    with pytest.raises(StoreConfigurationError, match="access key is wrong"):
        objects.put_if_absent(f"{LOG}/{name(0)}", b"1")
    assert objects.put_if_absent(f"{LOG}/{name(0)}", b"1") == AlreadyExists()
    assert objects.read(f"{LOG}/{name(0)}") == b"0"


def test_a_look_before_a_put_without_conditions_finds_what_is_there(server: FakeS3) -> None:
    objects = CommitObjects({"endpoint_url": server.url, "key": "key", "secret": "secret"}, environment=Waits().environment())
    server.befalls = lambda asked: (
        Fault(status=501, code="NotImplemented") if any(key.lower() == "if-none-match" for key in asked.headers) else None
    )
    assert objects.put_if_absent(f"{LOG}/{name(0)}", b"0") == Created()
    assert objects.put_if_absent(f"{LOG}/{name(0)}", b"1") == AlreadyExists()
    assert objects.read(f"{LOG}/{name(0)}") == b"0"
    # Asked for once: that it does not know the header is remembered.
    server.asked.clear()
    objects.put_if_absent(f"{LOG}/{name(1)}", b"1")
    assert [asked.method for asked in server.asked] == ["HEAD", "PUT"]
