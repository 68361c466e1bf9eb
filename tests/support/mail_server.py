"""A real SMTP server that stands for an operator's mail server, and can be told to misbehave."""

from __future__ import annotations

import contextlib
import socket
import ssl
from collections.abc import Callable, Generator
from email import policy
from email.message import EmailMessage
from email.parser import BytesParser
from pathlib import Path
from typing import Any

from aiosmtpd.controller import Controller
from aiosmtpd.smtp import SMTP, AuthResult


class MailServer:
    """What came in, and what to answer instead of an honest reply; each answer is used up once.

    rcpt, data: replies such as `451 later`; None cuts the connection there.
    """

    def __init__(self) -> None:
        self.mails: list[bytes] = []
        self.envelopes: list[Any] = []
        self.rcpt: list[str | None] = []
        self.data: list[str | None] = []
        self.is_secure: list[bool] = []
        self.port = 0

    def newest(self) -> EmailMessage:
        """The newest."""
        found = BytesParser(policy=policy.default).parsebytes(self.mails[-1])
        assert isinstance(found, EmailMessage)
        return found

    async def handle_RCPT(self, server: Any, _session: Any, envelope: Any, address: str, options: list[str]) -> str:
        """See aiosmtpd."""
        answer = self.rcpt.pop(0) if self.rcpt else "250 OK"
        if answer is None:
            server.transport.close()
            return "421 gone"
        if answer.startswith("250"):
            envelope.rcpt_tos.append(address)
            envelope.rcpt_options.extend(options)
        return answer

    async def handle_DATA(self, server: Any, session: Any, envelope: Any) -> str:
        """See aiosmtpd. The mail is taken before the connection is cut."""
        answer = self.data.pop(0) if self.data else "250 taken"
        if answer is None or answer.startswith("250"):
            self.mails.append(envelope.content)
            self.envelopes.append(envelope)
            self.is_secure.append(session.ssl is not None)
        if answer is None:
            server.transport.close()
            return "421 gone"
        return answer


@contextlib.contextmanager
def mail_server(
    tls: tuple[Path, Path] | None = None, login: Callable[[bytes, bytes], bool] | None = None
) -> Generator[MailServer]:
    """Serve on a free port of this machine. tls: certificate and key for STARTTLS. login: who may, by TLS alone."""
    handler = MailServer()
    context = None
    if tls is not None:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(*tls)

    def authenticate(_server: Any, _session: Any, _envelope: Any, _mechanism: str, data: Any) -> AuthResult:
        is_right = login is not None and login(data.login, data.password)
        return AuthResult(success=is_right, handled=is_right)

    with contextlib.closing(socket.create_server(("127.0.0.1", 0))) as free:
        port = free.getsockname()[1]

    class Serving(Controller):
        def factory(self) -> SMTP:
            return SMTP(
                handler,
                hostname="mx.example",
                tls_context=context,
                authenticator=None if login is None else authenticate,
                enable_SMTPUTF8=False,
            )

    controller = Serving(handler, hostname="127.0.0.1", port=port)
    controller.start()
    handler.port = port
    try:
        yield handler
    finally:
        controller.stop()
