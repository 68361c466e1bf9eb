"""A random key kept in a file that only its owner can read, made on first use; processes that race agree on one."""

from __future__ import annotations

import base64
import binascii
import contextlib
import os
import secrets
import stat
from pathlib import Path

from .settings import SettingsError

KEY_BYTES = 32


def open_key(path: Path, setting: str) -> bytes:
    """The key of `path`; makes its directory and the file (mode 0600) where they are missing.

    Raises SettingsError, which begins with `setting`, where the file is not one that only its owner can read, does not
    hold a key, or cannot be made.
    """
    try:
        if not path.exists():
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            _create(path)
        return _read(path, setting)
    except OSError as error:
        raise SettingsError(
            f"{setting}: {path} cannot be used ({error.strerror}); correct that, or remove the file."
        ) from None


def _create(path: Path) -> None:
    """Writes a fresh key beside `path` and links it there whole, so that no reader ever sees half a key."""
    draft = path.with_name(f".{path.name}.{secrets.token_hex(8)}")
    descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        with open(descriptor, "wb") as file:  # noqa: PTH123 - a descriptor, not a path
            file.write(base64.b64encode(secrets.token_bytes(KEY_BYTES)) + b"\n")
            file.flush()
            os.fsync(file.fileno())
        with contextlib.suppress(FileExistsError):
            os.link(draft, path)
    finally:
        draft.unlink()


def _read(path: Path, setting: str) -> bytes:
    descriptor = os.open(path, os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0))
    with open(descriptor, "rb") as file:  # noqa: PTH123 - a descriptor, not a path
        status = os.fstat(file.fileno())
        text = file.read(KEY_BYTES * 4)
    if os.name == "posix" and (not stat.S_ISREG(status.st_mode) or status.st_mode & 0o077):
        raise SettingsError(f"{setting}: {path} must be a file that only you can read: chmod 600 it.")
    with contextlib.suppress(binascii.Error, ValueError):
        key = base64.b64decode(text.strip(), validate=True)
        if len(key) == KEY_BYTES:
            return key
    raise SettingsError(f"{setting}: {path} does not hold a key: delete it, and a new one is made.")
