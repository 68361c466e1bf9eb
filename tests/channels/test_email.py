"""The email channel, outbound: what is handed over, what comes of every answer, and that headers are ours alone."""

from __future__ import annotations

import datetime as dt
import ipaddress
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from channel_scenes import KEY, pushed
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID
from hypothesis import given, settings
from hypothesis import strategies as st
from mail_server import MailServer, mail_server
from minutebook.commands.channels.ports import Pushed
from minutebook.domain.channels.messages import Address, Can, Outgoing, Place
from minutebook.infra.channels.email import EmailChannel
from minutebook.infra.settings_channels import ChannelSettings, SmtpSettings
from outside import now

ANN = Address("mail", "ann@acme.example", Place("ann@acme.example", "<root.1@acme.example>"))
MESSAGE_ID = f"<{KEY}@mail.example>"


def channel(port: int, *, loopback: bool = True, receives: bool = True, **smtp: Any) -> EmailChannel:
    own = SmtpSettings(**{"host": "127.0.0.1", "port": port, "tls": "none", **smtp})
    declared = ChannelSettings(
        kind="email",
        sender="agent@mail.example",
        smtp=own,
        allow_loopback=loopback,
        inbound_secret="bearer" if receives else None,
        authserv_id="mx.example" if receives else None,
    )
    return EmailChannel("mail", declared, now)


@pytest.fixture(scope="module")
def server() -> Iterator[MailServer]:
    with mail_server() as running:
        yield running


def test_what_it_can_follows_from_its_settings() -> None:
    assert channel(1).can == Can(receive=True, push=True, threads=True, keys=True, receipts=True)
    assert channel(1, receives=False).can == Can(push=True, threads=True, keys=True)


def test_a_mail_is_handed_over_in_its_thread_under_its_key(server: MailServer) -> None:
    text = "Grüße & <b>no markup</b>\n.\n<img src='https://track.example/x.png'>\n" + "long " * 60
    (payload,) = channel(server.port).render(Outgoing("reply", text, KEY, "crm"))
    assert pushed(channel(server.port), payload, address=ANN) == Pushed("accepted", native_ref=MESSAGE_ID)
    mail = server.newest()
    assert server.envelopes[-1].mail_from == "agent@mail.example"
    assert server.envelopes[-1].rcpt_tos == ["ann@acme.example"]
    headers = {name: str(mail[name]) for name in mail}
    assert headers.pop("Date")
    assert headers == {
        "From": "agent@mail.example",
        "To": "ann@acme.example",
        "Subject": "Message from mail",
        "Message-ID": MESSAGE_ID,
        "In-Reply-To": "<root.1@acme.example>",
        "References": "<root.1@acme.example>",
        "Auto-Submitted": "auto-replied",
        "X-Auto-Response-Suppress": "OOF, AutoReply",
        "Disposition-Notification-To": "agent@mail.example",
        "Content-Type": 'text/plain; charset="utf-8"',
        "Content-Transfer-Encoding": "quoted-printable",
        "MIME-Version": "1.0",
    }
    assert mail.get_content().replace("\r\n", "\n") == f"From crm:\n{text}\n"
    assert all(len(line) <= 998 for line in server.mails[-1].split(b"\r\n"))


NASTY = st.text(st.sampled_from('\r\n\t\0 :<>@,;"a.Bcc=é\u2028\x0b'), max_size=40)


@settings(max_examples=40, deadline=None)
@given(NASTY, NASTY, NASTY, NASTY)
def test_nothing_slips_into_the_headers(recipient: str, thread: str, text: str, key: str) -> None:
    mail = channel(1)._mail(
        "ann@acme.example",
        Address("mail", recipient, Place("x", f"<a@b>\r\nBcc: x@y\r\n{thread}")),
        {"text": f"{text}\r\n\r\nBcc: x@y"},
        f"<{'k'}@mail.example>",
    )
    head = mail.partition(b"\r\n\r\n")[0]
    assert b"bcc" not in head.lower()
    assert b"\n" not in head.replace(b"\r\n", b"")
    bad = f"ann@acme.example\r\nBcc: {recipient}"
    assert pushed(channel(1), address=Address("mail", bad), key=key) == Pushed("permanent", "no_address")


@settings(max_examples=30, deadline=None)
@given(st.text(min_size=1, max_size=60))
def test_any_key_becomes_one_message_id(key: str) -> None:
    from minutebook.infra.channels.mail_reports import key_of, message_id_of

    message_id = message_id_of(key, "mail.example")
    assert message_id.isascii()
    assert message_id.isprintable()
    assert " " not in message_id
    assert key_of(message_id, "Mail.example") == key
    assert key_of(message_id, "other.example") is None


@pytest.mark.parametrize(
    ("rcpt", "data", "expected"),
    [
        ([], ["250 taken"], Pushed("accepted", native_ref=MESSAGE_ID)),
        ([], ["451 later"], Pushed("retry", "smtp_451")),
        ([], ["552 too much"], Pushed("permanent", "smtp_552")),
        (["450 busy"], [], Pushed("retry", "smtp_450")),
        (["550 nobody"], [], Pushed("permanent", "smtp_550")),
        ([None], [], Pushed("retry", "unreachable")),
        ([], [None], Pushed("unknown", "connection_lost")),
    ],
)
def test_what_comes_of_an_answer(
    server: MailServer, rcpt: list[str | None], data: list[str | None], expected: Pushed
) -> None:
    server.rcpt, server.data = [*rcpt], [*data]
    sent = pushed(channel(server.port), address=ANN)
    # A server that says 421 and then goes may be seen to do either.
    assert sent == expected or (None in [*rcpt, *data] and sent.reason == "smtp_421"), sent
    server.rcpt, server.data = [], []


def test_nobody_there_may_come_later_and_a_private_address_is_refused(server: MailServer) -> None:
    before = len(server.mails)
    assert pushed(channel(9), address=ANN) == Pushed("retry", "unreachable")
    assert pushed(channel(1, host="does-not-exist.invalid"), address=ANN) == Pushed("retry", "unreachable")
    assert pushed(channel(server.port, loopback=False), address=ANN) == Pushed("permanent", "address_refused")
    assert pushed(channel(25, host="169.254.169.254"), address=ANN) == Pushed("permanent", "address_refused")
    assert pushed(channel(25, host="93.184.216.34"), address=ANN) == Pushed("permanent", "address_refused")
    assert len(server.mails) == before


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """Of 127.0.0.1, signed by itself."""
    folder = tmp_path_factory.mktemp("tls")
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "127.0.0.1")])
    begin = dt.datetime.now(dt.UTC) - dt.timedelta(days=1)
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(begin)
        .not_valid_after(begin + dt.timedelta(days=3))
        .add_extension(x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]), critical=False)
        .sign(key, hashes.SHA256())
    )
    paths = folder / "cert.pem", folder / "key.pem"
    paths[0].write_bytes(made.public_bytes(serialization.Encoding.PEM))
    paths[1].write_bytes(
        key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    )
    return paths


def test_starttls_checks_the_certificate_and_is_never_done_without(
    server: MailServer, certificate: tuple[Path, Path]
) -> None:
    assert pushed(channel(server.port, tls="starttls"), address=ANN) == Pushed("permanent", "not_supported")
    with mail_server(certificate, lambda user, password: (user, password) == (b"u", b"right")) as secure:
        own = {"tls": "starttls", "ca_file": str(certificate[0]), "user": "u"}
        assert pushed(channel(secure.port, **own, password="right"), address=ANN).outcome == "accepted"
        assert secure.is_secure == [True]
        assert pushed(channel(secure.port, **own, password="wrong"), address=ANN) == Pushed("permanent", "smtp_535")
        assert pushed(channel(secure.port, tls="starttls"), address=ANN) == Pushed("retry", "tls_failed")
        assert len(secure.mails) == 1
