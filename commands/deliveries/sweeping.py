"""What goes by the clock: lanes that nobody woke, orders that waited long enough, and deliveries whose time is over or
whose channel is gone."""

from __future__ import annotations

import asyncio
from datetime import datetime

from .ports import LaneQueue, Look, Rows
from .sending import Means, Sender

SWEEP_EVERY_S = 15
"""After a crash a lane is woken again within 60 s: the engine's own rescue, an attempt's lease and this."""

MAX_LANES = 1000
"""Woken by one sweep; the next one takes the rest."""

EXPIRE_BATCH = 200
MAX_EXPIRED = 20_000
"""Of one sweep."""

GONE_S = 60.0
"""So long nothing has happened to a delivery that is ended since its channel is gone: while settings change, servers of
two kinds may be there."""


async def sweep_lanes(rows: Rows, queue: LaneQueue, means: Means) -> None:
    """Expire, end, let go, wake."""
    await expire_due(rows, means)
    await end_gone(rows, means)
    await rows.release_orders()
    lanes = await rows.lanes_due(MAX_LANES)
    if lanes:
        await queue.wake(lanes)


async def expire_due(rows: Rows, means: Means) -> int:
    """Say of deliveries whose time is over that it is, also where a breaker or a pause holds their lane back."""
    done = 0
    while done < MAX_EXPIRED:
        look = await rows.expired(EXPIRE_BATCH)
        if not look.due:
            break
        moved = await _expire(rows, means, look, look.now)
        done += moved
        if moved == 0:
            break
    return done


async def end_gone(rows: Rows, means: Means) -> int:
    """End what is of a channel that no setting names, or over which nothing can be sent any more: nobody else would."""
    names = [name for name, channel in means.channels.items() if channel.can.push]
    done = 0
    while done < MAX_EXPIRED:
        look = await rows.without_channel(names, GONE_S, EXPIRE_BATCH)
        sender = Sender(means, lambda now=look.now: now)
        streams = await rows.events_of([each.stream_id for each in look.due])
        await asyncio.gather(
            *(sender.end_gone(each, streams[each.stream_id]) for each in look.due if each.stream_id in streams)
        )
        done += sender.appended
        if sender.appended == 0:
            break
    return done


async def _expire(rows: Rows, means: Means, look: Look, now: datetime) -> int:
    streams = await rows.events_of([each.stream_id for each in look.due])
    sender = Sender(means, lambda: now)
    await asyncio.gather(
        *(sender.expire(each, streams[each.stream_id]) for each in look.due if each.stream_id in streams)
    )
    return sender.appended
