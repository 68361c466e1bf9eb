"""What the routes work with; http/process.py makes it, once per process."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime

import msgspec

from ..commands.attendance import Attendance
from ..commands.channels.inbound import Receiving
from ..commands.conversations.ports import Clearance
from ..commands.deliveries.operators import Operators
from ..commands.rooms import Rooms
from ..infra.postgres.export_reader import ExportReader
from ..infra.postgres.store import PostgresStore
from ..infra.postgres.view_reader import ViewReader
from ..infra.settings import Settings
from .bridges import Bridges
from .continuations import ContinuationDesk
from .conversation_services import ConversationServices
from .delivery_services import Operating
from .inbox import InboxDesk
from .limits import Limits
from .link_services import LinkServices
from .live import Hub
from .metrics import Metrics


class Services(msgspec.Struct, frozen=True):
    """Handed to every route as a dependency. now: the server's clock, UTC. readiness: named checks for /readyz."""

    settings: Settings
    rooms: Rooms
    store: PostgresStore
    views: ViewReader
    exports: ExportReader
    hub: Hub
    log_id: str
    now: Callable[[], datetime]
    bridges: Bridges
    limits: Limits
    attendance: Attendance
    metrics: Metrics
    conversations: ConversationServices
    clearance: Clearance
    operators: Operators
    operating: Operating
    continuations: ContinuationDesk
    receiving: Receiving
    inbox: InboxDesk
    links: LinkServices
