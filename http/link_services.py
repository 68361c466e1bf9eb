"""What the routes of links work with in a serving process."""

from __future__ import annotations

import base64
import contextlib
import secrets

from msgspec import Struct
from ulid_transform import ulid_now

from ..commands.answers.ports import Continuations, Unlinking
from ..commands.beside import Admit
from ..commands.dispatcher import Dispatcher
from ..commands.linking.callers import CallerLinks, ChannelInfo
from ..commands.linking.handling import Linking
from ..commands.linking.operators import LinkOperators
from ..commands.linking.sign_in import SigningIn, SignInMeans
from ..commands.signals import Signals
from ..infra.channels.setup import KINDS
from ..infra.channels.web import WEB_CAN
from ..infra.link_hashes import KeyedLinkHashes, KeyedSignInHashes
from ..infra.link_policy import policy_of, token_tiers_of
from ..infra.oidc import Providers, providers_of
from ..infra.postgres.link_table import PostgresLinkTable
from ..infra.postgres.operator_tables import PostgresOperatorTables
from ..infra.postgres.pool import Pool
from ..infra.postgres.sign_ins import PostgresSignIns, PostgresSnapshots
from ..infra.postgres.store import PostgresStore
from ..infra.settings import Settings, is_loopback
from ..infra.settings_section import parse_duration
from ..infra.tokens import TokenVerifier
from .answer_services import unlinking_of
from .bounds import now
from .link_ends import ends_of


class LinkServices(Struct, frozen=True):
    """linking: for everybody who has proven an end. is_loopback: whether cookies may go without TLS."""

    linking: Linking
    callers: CallerLinks
    signing_in: SigningIn
    snapshots: PostgresSnapshots
    unlinking: Unlinking
    is_loopback: bool
    operators: LinkOperators


def linking_of(
    settings: Settings,
    pool: Pool,
    store: PostgresStore,
    server_key: bytes,
    signals: Signals,
    providers: Providers | None = None,
    hashes: KeyedLinkHashes | None = None,
) -> Linking:
    """Linking as the settings have it; one is enough for a process."""
    return Linking(
        store,
        PostgresLinkTable(pool, now),
        hashes or KeyedLinkHashes(server_key),
        policy_of(settings),
        now,
        ulid_now,
        secrets.randbits,
        token_tiers=token_tiers_of(settings),
        url_of=(lambda _tenant, _link_id: None) if providers is None else providers.url_of,
        signals=signals,
        code_ttl_s=parse_duration(settings.linking.challenge_ttl),
        relink_s=parse_duration(settings.linking.relink_wait),
    )


def link_services_of(
    settings: Settings,
    pool: Pool,
    store: PostgresStore,
    dispatcher: Dispatcher,
    server_key: bytes,
    verifier: TokenVerifier,
    signals: Signals,
    admit: Admit,
    stack: contextlib.AsyncExitStack,
    continuations: Continuations,
) -> LinkServices:
    """What it opens is closed by `stack`. continuations: end with the link of the end that they were begun from."""
    providers = providers_of(settings, verifier)
    for each in providers.by_name.values():
        stack.push_async_callback(each.close)
    linking, ends = linking_of(settings, pool, store, server_key, signals, providers), ends_of(settings, pool)
    channels = {
        name: ChannelInfo(
            each.tenant, each.kind, WEB_CAN if each.kind == "web" else KINDS[each.kind](name, each, now).can
        )
        for name, each in settings.channels.items()
    }
    snapshots = PostgresSnapshots(pool)
    means = SignInMeans(
        linking,
        PostgresLinkTable(pool, now),
        ends,
        PostgresSignIns(pool),
        snapshots,
        KeyedSignInHashes(server_key),
        providers.by_name,
        lambda size: base64.urlsafe_b64encode(secrets.token_bytes(size)).rstrip(b"=").decode(),
    )
    unlinking = unlinking_of(pool, store, continuations)
    callers = CallerLinks(linking, ends, unlinking, dispatcher, channels, admit)
    operators = LinkOperators(PostgresOperatorTables(pool), linking, callers, dispatcher, admit)
    return LinkServices(
        linking, callers, SigningIn(means), snapshots, unlinking, is_loopback(settings.server.host), operators
    )
