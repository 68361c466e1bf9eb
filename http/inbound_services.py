"""What takes messages from channels in a serving process. Nothing is sent from here: a notice wakes its lane."""

from __future__ import annotations

import base64
import contextlib
import secrets
from collections.abc import Mapping

from msgspec import Struct
from ulid_transform import ulid_now

from ..commands.answers.ports import Intake, Unlinking
from ..commands.answers.withdrawing import Withdrawing
from ..commands.channels.deleting import DeleteMeans, Deleting
from ..commands.channels.doing import Doing, DoMeans, Runs
from ..commands.channels.inbound import InboundMeans, Receiving
from ..commands.channels.inbound_ports import Claims
from ..commands.channels.judging import Judge, JudgeMeans
from ..commands.channels.ports import Channel
from ..commands.channels.sessions import Sessions
from ..commands.channels.speaking import Notices
from ..commands.channels.verbs import VerbMeans, Verbs
from ..commands.conversations.handlers import Conversations
from ..commands.deliveries.noting import Notes
from ..commands.deliveries.planning import Planner
from ..commands.linking.handling import Linking
from ..commands.signals import Signals
from ..domain.linking.state import Link
from ..infra.channels.rules import AllowCallables, rules_of
from ..infra.channels.setup import KINDS, payload_codec
from ..infra.channels.webhook import WebhookChannel
from ..infra.database import Database
from ..infra.delivery_hashes import DeliveryHashes
from ..infra.inbound_hashes import KeyedInboundHashes
from ..infra.postgres.delivery_payloads import PostgresPayloads
from ..infra.postgres.inbound_deletions import PostgresDeletions
from ..infra.postgres.inbound_rows import PostgresInboundRows, PostgresSessionRows
from ..infra.postgres.pool import Pool
from ..infra.postgres.store import PostgresStore
from ..infra.redaction.engine import Redactor
from ..infra.settings import Settings
from ..infra.settings_channels import ChannelSettings
from ..infra.settings_check_kept import DAY_S
from ..infra.settings_section import parse_duration
from .app_pools import wake_ups
from .bounds import now
from .delivery_terms import terms_of
from .inbound_pace import InboundPace
from .link_ends import ends_of


class Process(Struct, frozen=True):
    """What the rest of the process gives."""

    settings: Settings
    database: Database
    pool: Pool
    store: PostgresStore
    conversations: Conversations
    intake: Intake
    redactor: Redactor
    server_key: bytes
    signals: Signals
    linking: Linking
    claims: Claims
    unlinking: Unlinking
    runs: Runs


async def receiving_of(process: Process, stack: contextlib.AsyncExitStack) -> Receiving:
    """What takes messages in this process. What it opens is closed by `stack`. Raises SettingsError."""
    settings, pool, store = process.settings, process.pool, process.store
    rules, hashes = rules_of(settings), KeyedInboundHashes(process.server_key)
    channels: dict[str, Channel] = {
        name: KINDS[each.kind](name, each, now) for name, each in settings.channels.items() if each.kind in KINDS
    }
    planner = await _planner(process, channels, stack)
    notices = Notices(planner, frozenset(name for name, each in channels.items() if each.can.push))
    linking, unlinking = process.linking, process.unlinking

    async def unlinked(tenant: str, account: str, link: Link) -> None:
        await unlinking.unlinked(tenant, account, link.end)

    ends, conversations = ends_of(settings, pool), process.conversations
    sessions = Sessions(PostgresSessionRows(pool), hashes, conversations)
    verbs = Verbs(VerbMeans(linking, ends, sessions, conversations, notices, unlinked))
    rows, notes = PostgresInboundRows(pool), Notes(store, now, ulid_now)
    answers = Withdrawing(store, DeliveryHashes(process.server_key), notes)
    callables = AllowCallables(rules, settings.config_dir or settings.data_dir)
    return Receiving(
        InboundMeans(
            channels,
            rules,
            _decoy(),
            store,
            rows,
            hashes,
            linking,
            Judge(JudgeMeans(linking, ends, process.claims, callables)),
            sessions,
            conversations,
            Doing(DoMeans(process.intake, ends, sessions, verbs, notices, process.runs, now)),
            Deleting(DeleteMeans(rows, PostgresDeletions(pool), ends, conversations, answers)),
            notes,
            InboundPace(),
            process.signals,
            now,
            ulid_now,
            days=parse_duration(settings.delivery.inbound_ttl) // DAY_S,
        )
    )


async def _planner(process: Process, channels: Mapping[str, Channel], stack: contextlib.AsyncExitStack) -> Planner:
    planner = Planner(
        process.store,
        PostgresPayloads(process.pool),
        payload_codec(process.settings, process.redactor.value),
        await wake_ups(process.settings, process.database, stack, "wake-ups by messages"),
        DeliveryHashes(process.server_key),
        channels,
        terms_of(process.settings),
        now,
        ulid_now,
    )
    stack.push_async_callback(planner.close)
    return planner


def _decoy() -> Channel:
    """What is asked where there is no channel: its secret is nobody's."""
    secret = "whsec_" + base64.b64encode(secrets.token_bytes(32)).decode()
    return WebhookChannel("", ChannelSettings(kind="webhook", inbound_secret=secret), now)
