"""Python callables that settings name as `module:function`."""

from __future__ import annotations

import importlib
import inspect
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from .settings import SettingsError


def named_callable(key: str, text: str, folder: Path | None) -> Callable[..., Any]:
    """What `text` names; modules beside the settings file, in `folder`, are found, behind installed ones.

    Raises SettingsError with the key.
    """
    module_name, _, path = text.partition(":")
    if folder is not None and str(folder) not in sys.path:
        sys.path.append(str(folder))
    try:
        found: Any = importlib.import_module(module_name)
    except Exception as error:  # noqa: BLE001 - whatever the module does when it is imported
        raise SettingsError(f"{key}: {module_name} cannot be imported ({type(error).__name__}: {error}).") from None
    for part in path.split("."):
        found = getattr(found, part, None)
    if not callable(found):
        raise SettingsError(f"{key}: {module_name} has no callable {path}; correct one of the two.")
    return found


def is_async(function: Callable[..., Any]) -> bool:
    """Whether what it returns is to be awaited, also of an object that is callable."""
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(
        getattr(function, "__call__", None)  # noqa: B004
    )
