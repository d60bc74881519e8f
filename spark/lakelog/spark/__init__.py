"""Delta Lake tables in PySpark: call ``lakelog.spark.enable(spark)``, then use ``format("delta")`` and `DeltaTable`."""

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from lakelog.spark.builder import DeltaTableBuilder, IdentityGenerator
    from lakelog.spark.engines import who_can_read
    from lakelog.spark.session import disable, enable
    from lakelog.spark.table import DeltaTable

__all__ = ["DeltaTable", "DeltaTableBuilder", "IdentityGenerator", "disable", "enable", "who_can_read"]

# Imported when asked for: an executor's Python, which runs the Arrow engine's parts of this package, needs nothing of the driver's.
_HOMES = {
    "DeltaTable": "lakelog.spark.table",
    "DeltaTableBuilder": "lakelog.spark.builder",
    "IdentityGenerator": "lakelog.spark.builder",
    "disable": "lakelog.spark.session",
    "enable": "lakelog.spark.session",
    "who_can_read": "lakelog.spark.engines",
}


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
