"""Which database the settings mean, and the URL of each role in it; the embedded one is started or joined on demand."""

from __future__ import annotations

from types import TracebackType
from typing import Self

from .postgres.embedded import EmbeddedPostgres
from .postgres.feed import switch_feed
from .postgres.migrate import migrate
from .postgres.pool import RoleName, url_for
from .settings import Settings


class Database:
    """A context manager: `url(role)` is good while it is open.

    With `database.url` set nothing is started, and migrating is the operator's step. Without it the embedded
    PostgreSQL of the data directory is started or joined, and brought to this version by its own superuser.
    Raises DatabaseStartError, MigrationError.
    """

    def __init__(self, settings: Settings) -> None:
        self._settings = settings.database
        self._data_dir = settings.data_dir
        self._server: EmbeddedPostgres | None = None

    @property
    def is_embedded(self) -> bool:
        """Whether the database is the server's own."""
        return self._settings.url is None

    def open(self, *, migrated: bool = True) -> Self:
        """Start or join. `migrated` brings an embedded database to this version."""
        if self.is_embedded:
            self._server = EmbeddedPostgres.open(self._data_dir)
            if migrated:
                migrate(self.url("owner"))
                if self._settings.audit_feed:
                    switch_feed(self.url("owner"), on=True)
        return self

    def __enter__(self) -> Self:
        return self.open()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Leave; the last one to leave an embedded server stops it."""
        if self._server is not None:
            self._server.close()
            self._server = None

    def url(self, role: RoleName) -> str:
        """The URL of a role: its own setting, else the main URL with the house's role name in it."""
        if self._server is not None:
            return self._server.url("postgres" if role == "owner" else f"minutebook_{role}")
        main = self._settings.url
        assert main is not None  # noqa: S101 - an embedded database is opened before it is asked
        own: str | None = getattr(self._settings, f"{role}_url", None)
        if role == "app" or own is not None:
            return own or main
        return main if role == "owner" else url_for(main, role)

    @property
    def listen_url(self) -> str:
        """The URL of the listener, direct where the main one goes through a pooler."""
        return self._settings.listen_url or self.url("app")
