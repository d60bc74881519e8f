"""What the shared files of AWS programs, ``~/.aws/config`` and ``~/.aws/credentials``, say of where S3 is."""

from __future__ import annotations

import os
from functools import lru_cache

import botocore.exceptions
import botocore.session

__all__ = ["configured_endpoint", "configured_region"]

_SHARED_FILES = (("AWS_CONFIG_FILE", "~/.aws/config"), ("AWS_SHARED_CREDENTIALS_FILE", "~/.aws/credentials"))


def configured_endpoint(profile: str | None) -> str | None:
    """What boto3 would find in the shared files for S3, which then has to hold for whoever else reads the table, too."""
    files = [os.path.expanduser(os.environ.get(name) or usual) for name, usual in _SHARED_FILES]
    written = tuple((path, _written_ns(path)) for path in files)
    if not any(when for _, when in written):
        return None
    return _endpoint_in_files(profile, os.environ.get("AWS_PROFILE"), os.environ.get("AWS_DEFAULT_PROFILE"), written)


def configured_region(profile: str | None) -> str | None:
    """What boto3 would find as the region, None where nobody says one."""
    try:
        region = botocore.session.Session(profile=profile).get_config_variable("region")
    except botocore.exceptions.BotoCoreError:
        return None
    return str(region) if region else None


@lru_cache(maxsize=64)
def _endpoint_in_files(profile: str | None, *_: object) -> str | None:
    core = botocore.session.Session(profile=profile)
    try:
        said = core.get_scoped_config()
        if str(said.get("ignore_configured_endpoint_urls", "")).lower() == "true":
            return None
        of_services = core.full_config.get("services", {}).get(said.get("services"), {}).get("s3", {})
    except botocore.exceptions.BotoCoreError:
        # There is no such profile, or a file is broken: said by the first request, of those machines that need it.
        return None
    found = (of_services.get("endpoint_url") if isinstance(of_services, dict) else None) or said.get("endpoint_url")
    return str(found) if found else None


def _written_ns(path: str) -> int:
    try:
        return os.stat(path).st_mtime_ns
    except OSError:
        return 0
