"""What people on channels are told by the server itself, each in one place. No text holds anybody's words but the name
that the other end of a link is shown as."""

from __future__ import annotations

from ...domain.channels.authorize import BLAND
from .ends import TOKEN_CHANNEL

DENIED = BLAND
LINK_FIRST = "Link this chat with an account first: send /link, or /link and the code that you got elsewhere."
TOO_LONG = "That is too long for one message; send it in parts."
REFUSED = "That could not be taken here as it was asked for."
CODE_WRONG = "That code does not work. Begin again where you got it."
CODE_IN_GROUP = "A code that was shown in a group is void. Begin again, and send it in a private chat."
PRESENTED = "Almost done: confirm it now where you got the code."
NOTHING_TO_CONFIRM = "Nothing waits for your confirmation."
LINKED = "These chats are linked now. Send /unlink to part them."
NOT_CONFIRMED = "That link cannot be made any more. Begin again with /link."
NOT_LINKED = "This chat is not linked with anything."
UNLINKED = "This chat is on its own again."
TOO_MANY = "Too many links wait for their confirmation. Confirm one, or try again when one has expired."
NEW = "A new conversation begins with your next message."
CANCELLED = "What was running for you here is stopped."
NOTHING_RUNS = "Nothing runs for you here."
MUTED = "Nothing more is sent to this chat on its own. Send /start to undo that."
WELCOME = "Hello. Write to the agent; /link links this chat with an account, /stop mutes it, /status says how it is."


def link_code(code: str, ttl_s: float) -> str:
    """The code of a link, for who began it. ttl_s: how long it is good for, a minute at least."""
    shown = f"{code[:4]}-{code[4:]}"
    return (
        f"Your code is {shown}. Send /link {shown} in the other chat within {_counted(ttl_s)}, then confirm it here"
        " with /confirm. Show it to nobody, and in no group."
    )


def link_url(url: str, ttl_s: float) -> str:
    """Where an account is proven by its identity provider. ttl_s: as in link_code."""
    return (
        f"Sign in here within {_counted(ttl_s)} to link this chat, then send /confirm: {url}\nTo link it with another"
        " chat, send /link code instead."
    )


def asks_to_link(channel: str, display: str, word: str) -> str:
    """What the end that began a link is shown of the other one. word: of the confirmation."""
    if channel == TOKEN_CHANNEL:
        whom = f"The account {display}" if display else "An account"
    else:
        whom = f"{display} on {channel}" if display else f"A chat on {channel}"
    return f"{whom} wants to be linked with this chat. If that is you, send /confirm {word}; if not, do nothing."


def status(links: int, *, is_muted: bool, is_running: bool, queued: int) -> str:
    """How a chat stands."""
    linked = f"linked with {links} more" if links > 1 else "linked" if links else "not linked"
    heard = "muted" if is_muted else "not muted"
    running = "an answer is under way" if is_running else "nothing is under way"
    waits = f", {queued} wait" if queued else ""
    return f"This chat is {linked} and {heard}; {running}{waits}."


def _counted(seconds: float) -> str:
    minutes = int(seconds // 60)
    return "a minute" if minutes == 1 else f"{minutes} minutes"
