"""How executors come to open a table's data files: what they need, and the one way on which credentials reach them.

Credentials travel in a broadcast variable of Spark's and nowhere else: no pickled function, plan, local property or event log holds them.
Spark keeps broadcast variables in memory and in private folders of the driver and the executors, encrypted where
``spark.io.encryption.enabled`` says so.
"""

from __future__ import annotations

import re
import sys
import threading
from collections import OrderedDict
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from lakelog.core.errors import StoreConfigurationError
from lakelog.storage.file_access import FileAccess

if TYPE_CHECKING:
    # Executors, which import this too, have no use for the driver's classes.
    from pyspark import Broadcast
    from pyspark.sql import SparkSession

_KEPT = 256
_MISSING = re.compile(
    r"(?:ModuleNotFoundError|ImportError): No module named '(?P<module>lakelog|pyarrow|pyroaring|orjson|fsspec|numpy)\b"
    r"|PACKAGE_NOT_INSTALLED\] (?P<package>PyArrow|NumPy)\b"
)
_NO_PYTHON = re.compile(r'Cannot run program "(?P<python>[^"\n]+)"')


@dataclass(frozen=True, slots=True)
class ExecutorAccess:
    """A `FileAccess` that reaches executors with its credentials. To be pickled into a task's function.

    Attributes:
        access: without credentials once it is pickled.
        secrets: the credentials; None where executors find them themselves, or need none.
    """

    access: FileAccess
    secrets: Broadcast[dict[str, str]] | None = field(default=None, repr=False)

    def get(self) -> FileAccess:
        """What opens the files, on an executor as on the driver."""
        return self.access if self.secrets is None else self.access.with_secrets(self.secrets.value)


def executor_access(spark: SparkSession, access: FileAccess) -> ExecutorAccess:
    """The access for executors: one broadcast for an application and its credentials, whatever is read or written with them."""
    if not access.secrets:
        return ExecutorAccess(access)
    context = spark.sparkContext
    key = (context.applicationId, access)
    with _lock:
        found = _shared.get(key)
        if found is None:
            found = _shared[key] = ExecutorAccess(access, context.broadcast(dict(access.secrets)))
        _shared.move_to_end(key)
        while len(_shared) > _KEPT:
            # Tasks that still use it hold it themselves; Spark removes what nobody holds.
            _shared.popitem(last=False)
    return found


def lacking(messages: Iterable[str]) -> StoreConfigurationError | None:
    """What to tell a user whose executors cannot run lakelog's functions; None where that is not what an error says.

    Args:
        messages: of the error and its causes.
    """
    for message in messages:
        if missing := _MISSING.search(message):
            fault = f"The executors' Python has no module {(missing['module'] or missing['package']).lower()}."
        elif absent := _NO_PYTHON.search(message):
            fault = f"The executors cannot run {absent['python']} as their Python."
        else:
            continue
        return StoreConfigurationError(
            f"{fault} The Arrow engine needs Python {sys.version_info.major}.{sys.version_info.minor} there, with lakelog and the packages "
            "that it brings. Give executors the same pip packages as the driver, and name their Python by PYSPARK_PYTHON or "
            "spark.pyspark.python before the session starts."
        )
    return None


_lock = threading.Lock()
_shared: OrderedDict[tuple[str, FileAccess], ExecutorAccess] = OrderedDict()
