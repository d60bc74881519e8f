"""What docs/s3.md and docs/dynamodb.md give to be copied, as it stands there, in an interpreter of its own and on real servers.

What a reader replaces by his own, such as ``my-bucket``, is replaced here by this run's; nothing else of an example is changed.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from integration.servers import DynamoDBLocal, MinIO
from integration.servers.hadoop_aws import hadoop_version
from lakelog.storage.s3 import S3LogStore
from lakelog.storage.table_log import TableLog
from tests import pages
from tests.storage.logs import append, creation, grow

S3 = pages.DOCS / "s3.md"
DYNAMODB = pages.DOCS / "dynamodb.md"

_PATIENCE_S = 300
_FIRST_COMMIT = "numbers/_delta_log/00000000000000000000.json"


class Reader:
    """Somebody who copies an example into a file, puts in his own, and runs it.

    Attributes:
        own: what stands for what in an example.
        environment: variables of his machine; those of this one that are AWS' he has not.
    """

    def __init__(self, minio: MinIO, bucket: str, folder: Path) -> None:
        self.own = {
            "my-bucket": bucket,
            "http://minio.example:9000": minio.endpoint,
            "minio-user": minio.access_key,
            "minio-password": minio.secret_key,
            "eu-central-1": minio.region,
        }
        self.environment = {"HOME": str(folder), "AWS_EC2_METADATA_DISABLED": "true"}
        self.bucket = bucket
        self._minio = minio
        self._folder = folder

    def run(self, example: str, then: str = "") -> None:
        """Run it as a program.

        Args:
            example: its text.
            then: a program that goes on.
        """
        for place, own in self.own.items():
            example = example.replace(place, own)
        script = self._folder / "example.py"
        script.write_text(f"{example}\n{then}", encoding="utf-8")
        inherited = {name: value for name, value in os.environ.items() if not name.startswith("AWS_")}
        spark = f"--master local[2] --conf spark.ui.enabled=false --conf spark.sql.warehouse.dir={self._folder} pyspark-shell"
        paths = os.pathsep.join(filter(None, sys.path))
        done = subprocess.run(
            [sys.executable, str(script)],
            cwd=self._folder,
            env={**inherited, "PYSPARK_SUBMIT_ARGS": spark, "PYTHONPATH": paths, **self.environment},
            capture_output=True,
            text=True,
            timeout=_PATIENCE_S,
            check=False,
        )
        assert done.returncode == 0, f"{example}\n{done.stdout}\n{done.stderr}"
        self.said = done.stdout

    def objects(self) -> list[str]:
        """The objects that are in his bucket."""
        found = self._minio.client().list_objects_v2(Bucket=self.bucket).get("Contents", [])
        return [item["Key"] for item in found]


@pytest.fixture
def reader(minio: MinIO, bucket: str, tmp_path: Path) -> Reader:
    return Reader(minio, bucket, tmp_path)


def commits(bucket: str) -> str:
    """A program that commits to a table and reads it."""
    return f"""
from lakelog.storage import log_store_for
from lakelog.storage.table_log import TableLog
from tests.storage.logs import append, creation
log = TableLog("s3a://{bucket}/numbers", log_store_for("s3a://{bucket}/numbers"))
log.commit(creation())
log.commit(append(0, "one"))
assert log.refresh().num_files == 1
"""


# docs/s3.md ------------------------------------------------------------------------------------------------------------------


def test_with_pip_packages_alone(reader: Reader, minio: MinIO) -> None:
    reader.environment |= minio.environment()
    reader.run(
        pages.section(S3, "With pip packages alone"),
        f"""
(detail,) = lakelog.spark.DeltaTable.forPath(spark, "s3a://{reader.bucket}/numbers").detail().collect()
assert (detail.engine, detail.logStore) == ("arrow", "s3"), detail
assert sorted(row.id for row in spark.read.format("delta").load("s3a://{reader.bucket}/numbers").collect()) == [1, 2, 3, 4]
""",
    )
    assert "numbers/_delta_log/00000000000000000002.json" in reader.objects()


def test_with_hadoop_aws(reader: Reader, minio: MinIO, hadoop_aws: list[Path]) -> None:
    example = pages.section(S3, "With hadoop-aws")
    # The reader's Spark fetches by Maven what this one is given.
    fetched = {'"spark.jars.packages"': '"spark.jars"', f"org.apache.hadoop:hadoop-aws:{hadoop_version()}": ",".join(map(str, hadoop_aws))}
    assert all(name in example for name in fetched)
    reader.own |= fetched
    reader.environment |= minio.environment()
    reader.run(example)
    assert reader.said.splitlines()[-1] == "native"
    assert _FIRST_COMMIT in reader.objects()


def test_minio_by_hadoops_names(reader: Reader) -> None:
    (by_conf, _) = pages.sections(S3, "MinIO, and other servers that speak like S3")
    reader.run(by_conf)
    assert _FIRST_COMMIT in reader.objects()


def test_minio_in_python(reader: Reader) -> None:
    (_, in_python) = pages.sections(S3, "MinIO, and other servers that speak like S3")
    reader.run(in_python, commits(reader.bucket))
    assert _FIRST_COMMIT in reader.objects()


def test_a_profile(reader: Reader, minio: MinIO, tmp_path: Path) -> None:
    (tmp_path / ".aws").mkdir()
    keys = f"aws_access_key_id = {minio.access_key}\naws_secret_access_key = {minio.secret_key}\n"
    (tmp_path / ".aws" / "credentials").write_text(f"[analytics]\n{keys}", encoding="utf-8")
    reader.environment["AWS_ENDPOINT_URL"] = minio.endpoint
    reader.run(pages.section(S3, "A profile"), commits(reader.bucket))
    assert _FIRST_COMMIT in reader.objects()


def test_a_role(reader: Reader, minio: MinIO) -> None:
    reader.environment |= minio.environment()
    reader.run(pages.section(S3, "A role"), commits(reader.bucket))
    assert _FIRST_COMMIT in reader.objects()


def test_temporary_keys(reader: Reader, minio: MinIO) -> None:
    assumed = _assumed(minio)
    given = zip(('"ASIA..."', '"secret": "..."', '"token": "..."'), ('"{}"', '"secret": "{}"', '"token": "{}"'), assumed, strict=True)
    reader.own |= {place: form.format(value) for place, form, value in given}
    reader.environment["AWS_ENDPOINT_URL"] = minio.endpoint
    reader.run(pages.section(S3, "Temporary keys"), commits(reader.bucket))
    assert _FIRST_COMMIT in reader.objects()


def test_anonymously(reader: Reader, minio: MinIO) -> None:
    log = TableLog(f"s3a://{reader.bucket}/numbers", S3LogStore(minio.options()))
    log.commit(creation())
    everybody = json.loads(pages.section(S3, "Permissions", "json").replace("my-bucket", reader.bucket))
    for statement in everybody["Statement"]:
        statement["Principal"] = {"AWS": ["*"]}
        if isinstance(statement["Action"], list):
            statement["Action"] = ["s3:GetObject"]
    minio.client().put_bucket_policy(Bucket=reader.bucket, Policy=json.dumps(everybody))
    reader.environment["AWS_ENDPOINT_URL"] = minio.endpoint
    root = f"s3a://{reader.bucket}/numbers"
    reader.run(
        pages.section(S3, "Anonymously"),
        f"""
from lakelog.storage import log_store_for
from lakelog.storage.table_log import TableLog
assert TableLog("{root}", log_store_for("{root}")).snapshot().version == 0
""",
    )


def test_the_permissions_of_a_writer_and_of_a_reader_are_enough(minio: MinIO, bucket: str) -> None:
    policy = json.loads(pages.section(S3, "Permissions", "json").replace("my-bucket", bucket))
    writer = TableLog(f"s3a://{bucket}/numbers", S3LogStore(_assuming(minio, policy)))
    writer.commit(creation())
    grow(writer, 20)
    writer.refresh()
    reading = {"s3:GetObject", "s3:ListBucket"}
    for statement in policy["Statement"]:
        actions = [statement["Action"]] if isinstance(statement["Action"], str) else statement["Action"]
        statement["Action"] = [action for action in actions if action in reading]
    reader = TableLog(f"s3a://{bucket}/numbers", S3LogStore(_assuming(minio, policy)))
    assert reader.snapshot().version == 20
    assert len(reader.history()) == 21
    with pytest.raises(PermissionError, match="PutObject is denied"):
        reader.commit(append(20, "refused"))
    assert writer.refresh().version == 20


def _assuming(minio: MinIO, policy: Mapping[str, object]) -> dict[str, object]:
    """Options of somebody who may do what a policy says and no more."""
    key, secret, token = _assumed(minio, Policy=json.dumps(policy))
    return {**minio.options(), "key": key, "secret": secret, "token": token}


def _assumed(minio: MinIO, **arguments: str) -> tuple[str, str, str]:
    role = "arn:aws:iam::123456789012:role/lake-writer"
    found = minio.client("sts").assume_role(RoleArn=role, RoleSessionName="docs", **arguments)["Credentials"]
    return found["AccessKeyId"], found["SecretAccessKey"], found["SessionToken"]


# docs/dynamodb.md --------------------------------------------------------------------------------------------------------------


def test_dynamodb_by_delta_sparks_names(reader: Reader, minio: MinIO, dynamodb: DynamoDBLocal) -> None:
    (by_conf, _) = pages.sections(DYNAMODB, "A configuration")
    table = reader.own["delta_log"] = dynamodb.new_table_name()
    # "_delta_log", the folder, is not a name that anybody replaces.
    assert "_delta_log" not in by_conf
    reader.environment |= {**minio.environment(), "AWS_ENDPOINT_URL_DYNAMODB": dynamodb.endpoint}
    reader.run(by_conf)
    items = dynamodb.client().scan(TableName=table)["Items"]
    assert sorted(item["fileName"]["S"] for item in items) == ["00000000000000000000.json", "00000000000000000001.json"]
    assert {item["tablePath"]["S"] for item in items} == {f"s3a://{reader.bucket}/numbers"}


def test_dynamodb_in_python(reader: Reader, minio: MinIO, dynamodb: DynamoDBLocal) -> None:
    (_, in_python) = pages.sections(DYNAMODB, "A configuration")
    table = reader.own["delta_log"] = dynamodb.new_table_name()
    reader.own["http://dynamodb.example:8000"] = dynamodb.endpoint
    reader.environment |= minio.environment()
    reader.run(in_python, commits(reader.bucket))
    assert len(dynamodb.client().scan(TableName=table)["Items"]) == 2


def test_the_permissions_for_dynamodb_are_json() -> None:
    policy = json.loads(pages.section(DYNAMODB, "Permissions", "json"))
    actions = {action for statement in policy["Statement"] for action in statement["Action"]}
    assert all(action.startswith("dynamodb:") for action in actions)
