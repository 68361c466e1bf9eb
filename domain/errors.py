"""The error tree: every refusal that a caller can meet, with a stable code and a sentence that says what to do."""

from __future__ import annotations

from typing import Any, ClassVar


class MinutebookError(Exception):
    """Base of every refusal.

    `code` is the stable machine code of http.md; `detail` is one sentence for a person; `attributes` holds
    JSON-ready data that helps a client (camelCase keys). No HTTP number lives here: http/problems.py has the table.
    """

    code: ClassVar[str] = "internal"

    def __init__(self, detail: str, **attributes: Any) -> None:
        super().__init__(detail)
        self.detail = detail
        self.attributes: dict[str, Any] = attributes


class Malformed(MinutebookError):
    """The bytes are not the JSON that the server takes: syntax, depth, duplicate members, numbers (400)."""

    code = "malformed"


class InvalidCursor(MinutebookError):
    """A cursor or Last-Event-ID that this server would not have issued for that stream (400)."""

    code = "invalid_cursor"


class Unauthenticated(MinutebookError):
    """No token, or one that does not verify. The detail never says why in a way that helps a forger (401)."""

    code = "unauthenticated"


class NotVisible(MinutebookError):
    """What does not exist and what the caller may not see, indistinguishable (404)."""

    code = "not_found"

    def __init__(self) -> None:
        super().__init__("There is nothing here that you may see.")


class Forbidden(MinutebookError):
    """The caller may see it but not do this (403)."""

    code = "forbidden"


class ClientNotAllowed(Forbidden):
    """A token of a command-line client may read, post, queue and fork only (403)."""

    code = "client_not_allowed"


class RunNotLive(Forbidden):
    """The run of this token has ended or was never registered (403)."""

    code = "run_not_live"


class FourEyes(Forbidden):
    """Who prompted the run may not decide what it asks for (403)."""

    code = "four_eyes"


class Conflict(MinutebookError):
    """The state of the stream does not allow this now (409)."""

    code = "conflict"


class RoomBusy(Conflict):
    """Another live run holds the room (409)."""

    code = "room_busy"


class LeaseLost(Conflict):
    """The writer's lease is not the newest; it must say hello again (409)."""

    code = "lease_lost"


class StaleEpoch(Conflict):
    """The driver token moved since the caller looked (409). `driver` and `driverEpoch` say where it is."""

    code = "stale_epoch"


class NoRunningRun(Conflict):
    """There is no running run that this could reach (409)."""

    code = "no_running_run"


class NotQueued(Conflict):
    """The message waits for no run: it was removed, promoted or consumed, or it never waited (409)."""

    code = "not_queued"


class HumanDrives(Conflict):
    """A system starts no run while a human drives the room (409)."""

    code = "human_drives"


class HoldsDriver(Conflict):
    """The member holds the driver token; it must be given on first (409)."""

    code = "holds_driver"


class AlreadyEnded(Conflict):
    """The thing has ended already (409)."""

    code = "already_ended"


class AlreadyDecided(Conflict):
    """Somebody else, or time, decided first (409). `decision` says what it came to."""

    code = "already_decided"


class DigestMismatch(Conflict):
    """The decision is about another action than the one that was asked for (409)."""

    code = "digest_mismatch"


class StaleConsent(Conflict):
    """The two ends of the link are others than those that were consented to, or nobody has presented the code (409)."""

    code = "stale_consent"


class NotReplayable(Conflict):
    """The delivery cannot be sent again (409). `cause` says what stands against it."""

    code = "not_replayable"


class TooManyPending(Conflict):
    """Too many requests wait for an answer already (409)."""

    code = "too_many_pending"


class Full(Conflict):
    """A limit on a number of things is reached (409)."""

    code = "full"


class Sealed(MinutebookError):
    """The stream is closed for good (410)."""

    code = "sealed"


class TooLarge(MinutebookError):
    """A body, payload or text is over its limit in bytes (413)."""

    code = "payload_too_large"


class Invalid(MinutebookError):
    """A value is outside what the command takes (422). `errors` lists `{path, message}`."""

    code = "invalid"

    def __init__(self, detail: str, errors: list[dict[str, str]] | None = None, **attributes: Any) -> None:
        super().__init__(detail, **attributes)
        if errors:
            self.attributes["errors"] = errors

    @classmethod
    def at(cls, path: str, message: str) -> Invalid:
        """One bad value at a JSON path such as `$.text`."""
        return cls(f"{path}: {message}", [{"path": path, "message": message}])


class TooLong(MinutebookError):
    """What is to be copied leaves no room below the limits of a stream (422)."""

    code = "too_long"


class UnknownTarget(MinutebookError):
    """A channel that the tenant does not have: there is none of that name, or it is another tenant's (422)."""

    code = "unknown_target"


class FanOutExceeded(MinutebookError):
    """An answer would go to more destinations than one may (422). `limit` says how many."""

    code = "fan_out_exceeded"


class ReviewerNeedsPr(MinutebookError):
    """A reviewer's run needs a pull request to look at (422)."""

    code = "reviewer_needs_pr"


class KeyReused(MinutebookError):
    """The idempotency key was used with another request (422)."""

    code = "idempotency_key_reused"


class RateLimited(MinutebookError):
    """Too many requests from this principal (429). `retryAfterMs` says when to come back."""

    code = "rate_limited"


class QueueFull(MinutebookError):
    """Too much waits already for the next run or the running one (429). `retryAfterMs` says when to come back."""

    code = "queue_full"


class Unavailable(MinutebookError):
    """The server cannot do it now and nothing was stored, or the outcome is unknown; retry with the same key (503)."""

    code = "unavailable"


class TimedOut(MinutebookError):
    """A bounded wait ended (504). A command may still land: retry it with the same idempotency key."""

    code = "timed_out"


class Damaged(MinutebookError):
    """A stored event cannot be read by this version; the stream is parked until an operator looks (500)."""

    code = "internal"
