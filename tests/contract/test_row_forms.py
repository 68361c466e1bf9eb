"""Every row of deliveries, links and operators says in which form it is, and whose it is (delivery.md, Storage)."""

from __future__ import annotations

from typing import Any

BESIDE = frozenset(
    [
        "answers",
        "bulk_items",
        "bulk_plans",
        "channel_paces",
        "channel_pauses",
        "channel_sessions",
        "claim_snapshots",
        "continuations",
        "deliveries",
        "delivery_breakers",
        "delivery_payloads",
        "ends",
        "inbound_deletions",
        "inbound_messages",
        "inbound_signatures",
        "inbox_heads",
        "inbox_items",
        "link_challenges",
        "link_sign_ins",
        "link_wrongs",
        "linked_identities",
        "pushes",
    ]
)

OF_A_NAME_OF_ONE_TENANT = frozenset({"channel_paces", "delivery_breakers"})
"""Keyed by a channel of the settings, and by a destination, which is hashed with its tenant."""


def test_rows_have_a_form_and_a_tenant(database: Any) -> None:
    with database.connect("postgres") as superuser:
        found = superuser.execute(
            "SELECT c.table_name, c.column_name, c.is_nullable FROM information_schema.columns c"
            " WHERE c.table_schema = 'minutebook' AND c.column_name IN ('tenant', 'schema_version')"
        ).fetchall()
    with_form = {table for table, column, nullable in found if (column, nullable) == ("schema_version", "NO")}
    with_tenant = {table for table, column, nullable in found if (column, nullable) == ("tenant", "NO")}
    assert BESIDE - with_form == set()
    assert BESIDE - with_tenant == OF_A_NAME_OF_ONE_TENANT
