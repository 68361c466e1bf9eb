"""The server's own key: what fingerprints of idempotent requests are made with."""

from __future__ import annotations

from .key_file import open_key
from .settings import Settings

KEY_NAME = "server.key"


def server_key(settings: Settings) -> bytes:
    """32 bytes, made in the data directory on first use.

    Servers of several machines that share one database share the key: copy the file, or a retry that meets another
    machine is taken for another request. Raises SettingsError where the file cannot be used.
    """
    return open_key(settings.data_dir / KEY_NAME, "dataDir")
