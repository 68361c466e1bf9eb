"""The email channel, inbound: what proves a mail, what of it was written, loops, and reports on our own mails."""

from __future__ import annotations

import contextlib

import pytest
from channel_scenes import KEY, NOW
from hypothesis import given, settings
from hypothesis import strategies as st
from minutebook.commands.channels.ports import NotAuthentic, Proof, RawRequest, Receipt
from minutebook.domain.channels.messages import ChannelIdentity, Inbound, Place
from minutebook.domain.errors import Invalid
from minutebook.infra.channels.email import EmailChannel
from minutebook.infra.channels.mail_text import written
from minutebook.infra.settings_channels import ChannelSettings, SmtpSettings
from outside import now

PASS = "Authentication-Results: mx.example; spf=pass smtp.mailfrom=acme.example;\r\n dmarc=pass (p=reject) header.from=acme.example\r\n"  # noqa: E501
HEAD = (
    "From: Ann Example <Ann@Acme.Example>\r\nTo: agent@mail.example\r\nSubject: hi\r\nMessage-ID: <m1@acme.example>\r\n"
)
PLAIN = "Content-Type: text/plain; charset=utf-8\r\n"


def channel() -> EmailChannel:
    declared = ChannelSettings(
        kind="email",
        sender="agent@mail.example",
        smtp=SmtpSettings(host="smtp.example"),
        inbound_secret="bearer-of-the-relay",
        authserv_id="mx.example",
    )
    return EmailChannel("mail", declared, now)


def request(mail: str | bytes, bearer: str = "Bearer bearer-of-the-relay") -> RawRequest:
    return RawRequest({"authorization": bearer}, mail if isinstance(mail, bytes) else mail.encode())


def read(mail: str | bytes) -> Inbound:
    inbound = channel().parse(request(mail))
    assert isinstance(inbound, Inbound)
    return inbound


def test_a_mail_with_an_aligned_pass_of_our_server_is_proven() -> None:
    assert channel().verify(request(f"{PASS}{HEAD}{PLAIN}\r\nhello"), NOW) == Proof()
    quoted = 'Authentication-Results: "MX.example" 1; dmarc = pass header.from = "acme.example" (; dmarc=fail)\r\n'
    assert channel().verify(request(quoted + HEAD), NOW) == Proof()


def result(text: str) -> str:
    return f"Authentication-Results: {text}\r\n{HEAD}\r\nhello"


@pytest.mark.parametrize(
    "mail",
    [
        f"{HEAD}\r\nhello",
        result("mx.example; dmarc=fail header.from=acme.example"),
        result("mx.example; spf=pass; dkim=pass header.d=acme.example"),
        result("mx.example; dmarc=pass"),
        result("mx.example; dmarc=pass header.from=evil.example"),
        result("mx.example; dmarc=pass header.from=sub.acme.example"),
        result("mx.example; dmarc=fail (dmarc=pass header.from=acme.example)"),
        result('mx.example; dmarc=none reason="; dmarc=pass header.from=acme.example"'),
        result('mx.example; x=y reason="\\"; dmarc=pass header.from=acme.example"'),
        result("mx.example; dmarc=pass header.from=acme.example; dmarc=fail header.from=acme.example"),
        result("mx.example; dmarc=pass header.from=acme.example header.from=evil.example"),
        result("mx.example.evil; dmarc=pass header.from=acme.example"),
        result("evil (mx.example); dmarc=pass header.from=acme.example"),
        result("; dmarc=pass header.from=acme.example"),
        result(""),
        # The pass of our server, but not the topmost: it came with the mail.
        f"Authentication-Results: other.example; none\r\n{PASS}{HEAD}\r\nhello",
        # Below the headers it is a text.
        f"{HEAD}\r\n{PASS}\r\nhello",
        # Nobody, several, or somebody unclear wrote it.
        PASS + HEAD.replace("From:", "X-From:"),
        PASS + "From: <evil@evil.example>\r\n" + HEAD,
        PASS + HEAD.replace("<Ann@", "<eve@evil.example>, <Ann@"),
        PASS + HEAD.replace("Ann Example <Ann@Acme.Example>", '"Ann@acme.example" <eve@evil.example>'),
        PASS + HEAD.replace("<Ann@Acme.Example>", "<@evil.example:Ann@Acme.Example>"),
        "",
        "\0",
        "From: \r\n\r\n",
    ],
)
def test_a_mail_that_is_not_proven_is_refused(mail: str) -> None:
    with pytest.raises(NotAuthentic):
        channel().verify(request(mail), NOW)


@pytest.mark.parametrize("bearer", ["", "Bearer", "Bearer ", "Bearer x", "bearer-of-the-relay", "Bearer é"])
def test_anybody_could_post_a_forged_mail_so_the_relay_proves_itself(bearer: str) -> None:
    with pytest.raises(NotAuthentic):
        channel().verify(request(f"{PASS}{HEAD}{PLAIN}\r\nhello", bearer), NOW)


@settings(max_examples=60, deadline=None)
@given(st.binary(max_size=300) | st.text(st.sampled_from('\r\n:;"()\\=<>@, aé\0')).map(str.encode))
def test_no_bytes_break_the_reading(junk: bytes) -> None:
    for mail in (junk, PASS.encode() + junk, PASS.encode() + HEAD.encode() + junk, b"Content-Type: " + junk):
        with contextlib.suppress(NotAuthentic):
            channel().verify(request(mail), NOW)
        with contextlib.suppress(Invalid):
            channel().parse(request(mail))


def test_a_mail_is_read() -> None:
    inbound = read(f"{PASS}{HEAD}{PLAIN}References: <r1@x.example> <r2@x.example>\r\n\r\nhello\r\nthere\r\n")
    assert inbound == Inbound(
        sender=ChannelIdentity("default", "mail", "ann@acme.example", {"email": ("ann@acme.example",)}),
        place=Place("ann@acme.example", "<r1@x.example>"),
        message_id=inbound.message_id,
        text="hello\nthere",
        is_mention=True,
        display="ann@acme.example",
    )
    assert read(f"{HEAD}{PLAIN}\r\nx").place.thread == "<m1@acme.example>"
    assert read(f"{HEAD}{PLAIN}\r\n/link ABCD2345\r\n-- \r\nAnn").argument == "ABCD2345"


def test_a_message_id_is_that_of_its_author() -> None:
    mine, again = (read(f"{extra}{HEAD}{PLAIN}\r\nhello").message_id for extra in ("", "Received: x\r\n"))
    other = read(HEAD.replace("Ann@", "Eve@") + f"{PLAIN}\r\nhello").message_id
    assert mine == again != other
    bare = HEAD.replace("Message-ID: <m1@acme.example>\r\n", "")
    assert read(f"{bare}{PLAIN}\r\na").message_id != read(f"{bare}{PLAIN}\r\nb").message_id


MIXED = (
    'Content-Type: multipart/alternative; boundary="b"\r\n\r\n--b\r\nContent-Type: text/plain; charset=iso-8859-1\r\n'
    "Content-Transfer-Encoding: quoted-printable\r\n\r\nGr=FC=DFe\r\n--b\r\nContent-Type: text/html\r\n\r\n"
    "<b>other</b>\r\n--b--\r\n"
)


def test_the_plain_part_alone_is_read() -> None:
    assert read(HEAD + MIXED).text == "Grüße"
    flowed = "Content-Type: text/plain; format=flowed\r\n\r\na long \r\nline\r\n> quoted \r\n> too\r\n"
    assert read(HEAD + flowed).text == "a long line"
    assert channel().parse(request(f"{HEAD}Content-Type: text/html\r\n\r\n<b>x</b>")) is None
    assert (
        channel().parse(request(f"{HEAD}Content-Type: text/plain\r\nContent-Disposition: attachment\r\n\r\nx")) is None
    )
    assert channel().parse(request(f"{HEAD}{PLAIN}\r\n \r\n")) is None


@pytest.mark.parametrize(
    "header",
    ["Auto-Submitted: auto-replied", "Precedence: bulk", "List-Id: <l.example>", "Return-Path: <>", "X-Loop: a"],
)
def test_machines_and_lists_are_not_answered(header: str) -> None:
    assert channel().parse(request(f"{HEAD}{header}\r\n{PLAIN}\r\nhello")) is None


def test_our_own_mail_is_not_answered_and_no_means_a_person() -> None:
    own = HEAD.replace("Ann Example <Ann@Acme.Example>", "agent@mail.example")
    assert channel().parse(request(f"{own}{PLAIN}\r\nhello")) is None
    assert read(f"{HEAD}Auto-Submitted: no\r\n{PLAIN}\r\nhello").text == "hello"


@pytest.mark.parametrize(
    ("mail", "text"),
    [
        ("Yes.\n\nOn Mon, 5 Jan 2026 at 10:00, Agent <a@b.example> wrote:\n> what?\n> really\n", "Yes."),
        ("Yes.\n\nOn Mon, 5 Jan 2026 at 10:00, Agent\n<a@b.example> wrote:\n\n> what?\n", "Yes."),
        ("Ja.\n\nAm 05.01.26 um 10:00 schrieb Agent:\n> was?\n", "Ja."),
        ("> one?\nyes\n> two?\nno\n", "> one?\nyes\n> two?\nno"),
        ("> one?\nyes\n\n> two?\n", "> one?\nyes"),
        ("Done\n-- \nAnn\nAcme", "Done"),
        ("Done\n\n-----Original Message-----\nFrom: x\n", "Done"),
        ("Done\n\nFrom: Agent\nSent: Monday\nTo: Ann\nSubject: x\n\nold", "Done"),
        ("Done\n________________________________\nFrom: Agent\nold", "Done"),
        ("From: the start\nno headers here", "From: the start\nno headers here"),
        ("On the whole I agree:\nfine", "On the whole I agree:\nfine"),
        ("> only a quotation", ""),
        ("", ""),
    ],
)
def test_what_is_new_is_kept_and_history_is_cut(mail: str, text: str) -> None:
    assert written(mail) == text


def report(kind: str, part: str, returned: str = "") -> str:
    return (
        f"From: MAILER-DAEMON@acme.example\r\nTo: agent@mail.example\r\nAuto-Submitted: auto-replied\r\n"
        f'Content-Type: multipart/report; report-type={kind}; boundary="b"\r\n\r\n'
        f"--b\r\nContent-Type: text/plain\r\n\r\nfor people\r\n"
        f"--b\r\nContent-Type: message/{kind}\r\n\r\n{part}\r\n{returned}--b--\r\n"
    )


OURS = f"Message-ID: <{KEY}@mail.example>"
RETURNED = f"--b\r\nContent-Type: text/rfc822-headers\r\n\r\nFrom: agent@mail.example\r\n{OURS}\r\n"
WHOLE = f"--b\r\nContent-Type: message/rfc822\r\n\r\n{OURS}\r\n\r\nhello\r\n"
FINAL = "Final-Recipient: rfc822; ann@acme.example\r\n"


@pytest.mark.parametrize(
    ("mail", "receipts"),
    [
        (
            report("delivery-status", f"Original-Envelope-Id: {KEY}\r\n\r\n{FINAL}Action: delivered\r\n"),
            [Receipt(KEY, "delivered")],
        ),
        (
            report("delivery-status", f"Reporting-MTA: dns; x\r\n\r\n{FINAL}Action: failed\r\n", RETURNED),
            [Receipt(KEY, "failed")],
        ),
        (report("delivery-status", f"Reporting-MTA: dns; x\r\n\r\n{FINAL}Action: Failed\r\n", WHOLE), "failed"),
        (report("delivery-status", f"Reporting-MTA: dns; x\r\n\r\n{FINAL}Action: delayed\r\n", RETURNED), None),
        (report("delivery-status", f"Reporting-MTA: dns; x\r\n\r\n{FINAL}Action: delivered\r\n"), None),
        (
            report(
                "disposition-notification",
                f"{FINAL}Original-Message-ID: <{KEY}@mail.example>\r\n"
                "Disposition: manual-action/MDN-sent-manually; displayed\r\n",
            ),
            [Receipt(KEY, "observed")],
        ),
        (
            report(
                "disposition-notification",
                f"{FINAL}Original-Message-ID: <{KEY}@mail.example>\r\nDisposition: automatic-action/x; deleted\r\n",
            ),
            None,
        ),
        (
            report(
                "disposition-notification",
                f"{FINAL}Original-Message-ID: <{KEY}@other.example>\r\nDisposition: a/b; displayed\r\n",
            ),
            None,
        ),
    ],
)
def test_reports_on_our_mails_are_receipts(mail: str, receipts: list[Receipt] | str | None) -> None:
    expected = [Receipt(KEY, "failed")] if receipts == "failed" else receipts
    assert channel().parse(request(mail)) == expected
