"""Hands one mail to the operator's mail server, at an address that is checked where it is connected to."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
from collections.abc import AsyncGenerator

import httpx
from aiosmtplib import SMTP, SMTPException, SMTPNotSupported, SMTPResponseException

from ...commands.channels.ports import Pushed
from ..outward_http import Address, is_private, is_public, resolve
from ..settings_channels import SmtpSettings

OK = 250
TEMPORARY = 400
PERMANENT = 500


class _Refused(Exception):
    """The address is not one that may be connected to."""


class Mailer:
    """A connection for each mail. allow_private: the server may be on this machine or in a private network.

    STARTTLS is never done without where the settings ask for it, and nothing is handed over in the clear but to a
    private address.
    """

    def __init__(self, settings: SmtpSettings, *, allow_private: bool, hello: str) -> None:
        self._settings = settings
        self._allow_private = allow_private
        self._hello = hello
        self._context: ssl.SSLContext | None = None

    async def send(self, sender: str, recipient: str, mail: bytes, envelope_id: str, timeout_s: float) -> Pushed:
        """Hand over one mail of CRLF lines. Accepted is a 250 after its last byte; what is lost between DATA and that
        answer is unknown. envelope_id: what a report of its delivery is asked to name."""
        is_written = False
        try:
            async with asyncio.timeout(timeout_s), self._connected(timeout_s) as smtp:
                options = ["RET=HDRS", f"ENVID={envelope_id}"] if smtp.supports_extension("dsn") else []
                await smtp.mail(sender, options=[*options, *(["BODY=8BITMIME"] if not mail.isascii() else [])])
                await smtp.rcpt(recipient, options=["NOTIFY=SUCCESS,FAILURE"] if options else [])
                is_written = True
                answer = await smtp.data(mail)
                return Pushed("accepted") if answer.code == OK else _of_code(answer.code)
        except _Refused:
            return Pushed("permanent", "address_refused")
        except (SMTPException, OSError, ValueError, httpx.ConnectError) as error:
            return _of_error(error, is_written=is_written)

    @contextlib.asynccontextmanager
    async def _connected(self, timeout_s: float) -> AsyncGenerator[SMTP]:
        own = self._settings
        context = None if own.tls == "none" else await self._trusted()
        smtp = SMTP(
            hostname=own.host,
            sock=await self._socket(),
            timeout=timeout_s,
            use_tls=own.tls == "tls",
            start_tls=False,
            tls_context=context,
            local_hostname=self._hello,
        )
        try:
            await smtp.connect()
            await smtp.ehlo()
            if own.tls == "starttls":
                if not smtp.supports_extension("starttls"):
                    raise SMTPNotSupported("starttls")
                await smtp.starttls()
            if own.user is not None and own.password is not None:
                await smtp.login(own.user, own.password)
            await smtp.ehlo()
            yield smtp
            with contextlib.suppress(SMTPException, OSError):
                await smtp.quit(timeout=1)
        finally:
            # Not closed in good form: the farewell of TLS would wait for the other side, with nobody to see to its end.
            if isinstance(smtp.transport, asyncio.WriteTransport):
                smtp.transport.abort()
            smtp.close()

    async def _trusted(self) -> ssl.SSLContext:
        if self._context is None:
            self._context = await asyncio.to_thread(ssl.create_default_context, cafile=self._settings.ca_file)
        return self._context

    async def _socket(self) -> socket.socket:
        """A connection to exactly the address that was checked."""
        addresses = await resolve(self._settings.host, self._settings.port)
        if not all(self._is_allowed(address) for address in addresses):
            raise _Refused
        failure: OSError = ConnectionError("no address")
        for address in addresses:
            family = socket.AF_INET if address.version == 4 else socket.AF_INET6
            found = socket.socket(family, socket.SOCK_STREAM)
            try:
                found.setblocking(False)
                await asyncio.get_running_loop().sock_connect(found, (str(address), self._settings.port))
                return found
            except OSError as error:
                found.close()
                failure = error
            except asyncio.CancelledError:
                found.close()
                raise
        raise failure

    def _is_allowed(self, address: Address) -> bool:
        if is_public(address):
            return self._settings.tls != "none"
        return self._allow_private and is_private(address)


def _of_error(error: Exception, *, is_written: bool) -> Pushed:
    match error:
        case SMTPResponseException():
            return _of_code(error.code)
        case SMTPNotSupported():
            return Pushed("permanent", "not_supported")
        case ssl.SSLError() if not is_written:
            return Pushed("retry", "tls_failed")
        case TimeoutError():
            return Pushed("unknown" if is_written else "retry", "timeout")
        case ValueError():
            return Pushed("permanent", "refused")
        case _:
            return Pushed("unknown", "connection_lost") if is_written else Pushed("retry", "unreachable")


def _of_code(code: int) -> Pushed:
    if code >= PERMANENT:
        return Pushed("permanent", f"smtp_{code}")
    return Pushed("retry", f"smtp_{code}") if code >= TEMPORARY else Pushed("unknown", "answer_unreadable")
