"""The reference page of database permissions, read from the catalogs of a migrated database."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, LiteralString

import psycopg

ROLES = ("app", "projector", "retention", "eraser", "auditor")
"""The login roles, without their prefix."""

INTRODUCTION = """\
What each database role may do, as the catalogs of a migrated database have it. The guards and why they are there:
[guarantees](../explanation/guarantees.md)."""

NOT_LISTED = """\
The roles are shared by all databases of a cluster. A role that is not listed in a table below has no right there."""

TABLES = "Rights beside the owner's. Columns in parentheses are the only ones that a right holds for."

FUNCTIONS = "EXECUTE beside the owner's. A function with the owner's rights has its search path fixed."

_LOGIN = """
SELECT rolname, rolcanlogin, rolsuper, rolbypassrls,
    ARRAY(SELECT m.rolname::text FROM pg_auth_members a JOIN pg_roles m ON m.oid = a.roleid
          WHERE a.member = r.oid ORDER BY 1)
FROM pg_roles r WHERE rolname LIKE 'minutebook\\_%' ORDER BY rolname = 'minutebook_owner' DESC, rolname
"""

_SCHEMAS = """
SELECT n.nspname, pg_get_userbyid(n.nspowner), pg_get_userbyid(a.grantee), a.privilege_type
FROM pg_namespace n CROSS JOIN LATERAL aclexplode(n.nspacl) a
WHERE n.nspname LIKE 'minutebook%' AND a.grantee <> 0 ORDER BY 1, 3, 4
"""

_TABLES = """
SELECT format('%I.%I', n.nspname, c.relname), pg_get_userbyid(a.grantee), a.privilege_type, ''
FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace CROSS JOIN LATERAL aclexplode(c.relacl) a
WHERE n.nspname LIKE 'minutebook%' AND c.relkind IN ('r', 'v', 'p') AND a.grantee <> c.relowner
UNION ALL
SELECT format('%I.%I', n.nspname, c.relname), pg_get_userbyid(a.grantee), a.privilege_type,
    string_agg(t.attname, ', ' ORDER BY t.attnum)
FROM pg_attribute t JOIN pg_class c ON c.oid = t.attrelid JOIN pg_namespace n ON n.oid = c.relnamespace
CROSS JOIN LATERAL aclexplode(t.attacl) a
WHERE n.nspname LIKE 'minutebook%' AND a.grantee <> c.relowner GROUP BY 1, 2, 3
ORDER BY 1, 2, 3, 4
"""

_ALL_TABLES = """
SELECT format('%I.%I', n.nspname, c.relname), c.relrowsecurity, c.relforcerowsecurity
FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE n.nspname LIKE 'minutebook%' AND c.relkind IN ('r', 'v', 'p') ORDER BY 1
"""

_FUNCTIONS = """
SELECT format('%s.%s', n.nspname, p.proname), pg_get_userbyid(p.proowner), p.prosecdef,
    ARRAY(SELECT CASE a.grantee WHEN 0 THEN 'PUBLIC' ELSE pg_get_userbyid(a.grantee)::text END
          FROM aclexplode(coalesce(p.proacl, acldefault('f', p.proowner))) a WHERE a.grantee <> p.proowner ORDER BY 1),
    coalesce(array_to_string(p.proconfig, ', '), ''), p.prorettype = 'trigger'::regtype
FROM pg_proc p JOIN pg_namespace n ON n.oid = p.pronamespace WHERE n.nspname LIKE 'minutebook%' ORDER BY 6, 1
"""

_POLICIES = """
SELECT format('%I.%I', schemaname, tablename), policyname, cmd, roles::text[], coalesce(qual, ''),
    coalesce(with_check, '')
FROM pg_policies WHERE schemaname LIKE 'minutebook%' ORDER BY 1, 2
"""

_TRIGGERS = """
SELECT format('%I.%I', n.nspname, c.relname), t.tgname,
    regexp_replace(regexp_replace(pg_get_triggerdef(t.oid), '^.* TRIGGER \\S+ ', ''), ' ON .*$', ''),
    CASE WHEN t.tgtype & 1 = 1 THEN 'row' ELSE 'statement' END,
    CASE t.tgenabled WHEN 'A' THEN 'always' WHEN 'O' THEN 'unless a replica' ELSE 'no' END
FROM pg_trigger t JOIN pg_class c ON c.oid = t.tgrelid JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE NOT t.tgisinternal AND n.nspname LIKE 'minutebook%' ORDER BY 1, 2
"""


def permissions_page(connection: psycopg.Connection[Any], heading: str) -> str:
    """The page. `connection` is a superuser's; `heading` says that the page is generated."""
    sections = (_roles, _schemas, _tables, _functions, _row_security, _triggers)
    lines = ["# Permissions", "", heading, "", INTRODUCTION]
    for section in sections:
        lines += ["", *section(connection)]
    return "\n".join(lines) + "\n"


def _roles(connection: psycopg.Connection[Any]) -> list[str]:
    rows = [
        (_short(name), _yes(login), _yes(top), _yes(bypasses), _list(map(_short, member)))
        for name, login, top, bypasses, member in _rows(connection, _LOGIN)
    ]
    head = ("role", "may log in", "superuser", "bypasses row security", "member of")
    return ["## Roles", "", *_table(head, rows), "", NOT_LISTED]


def _schemas(connection: psycopg.Connection[Any]) -> list[str]:
    rows = [(name, _short(owner), _short(role), right) for name, owner, role, right in _rows(connection, _SCHEMAS)]
    return ["## Schemas", "", *_table(("schema", "owner", "role", "right"), [row for row in rows if row[1] != row[2]])]


def _tables(connection: psycopg.Connection[Any]) -> list[str]:
    rights: dict[tuple[str, str], list[str]] = {}
    for place, role, privilege, columns in _rows(connection, _TABLES):
        rights.setdefault((place, _short(role)), []).append(f"{privilege} ({columns})" if columns else privilege)
    rows = [
        (f"`{place}`", *("<br>".join(rights.get((place, role), ())) for role in ROLES))
        for place, _, _ in _rows(connection, _ALL_TABLES)
    ]
    return ["## Tables", "", TABLES, "", *_table(("table", *ROLES), rows)]


def _functions(connection: psycopg.Connection[Any]) -> list[str]:
    called: list[tuple[str, ...]] = []
    fired: list[tuple[str, ...]] = []
    for name, owner, is_definer, who, config, is_trigger in _rows(connection, _FUNCTIONS):
        callers = _list(map(_short, who))
        if is_trigger:
            fired.append((f"`{name}`", callers, config))
        else:
            called.append((f"`{name}`", _short(owner) if is_definer else "caller", callers, config))
    return [
        *("## Functions", "", FUNCTIONS, ""),
        *_table(("function", "runs as", "may be called by", "settings"), called),
        *("", "Trigger functions, which nobody calls:", ""),
        *_table(("function", "may be called by", "settings"), fired),
    ]


def _row_security(connection: psycopg.Connection[Any]) -> list[str]:
    on = [(f"`{place}`", "yes", _yes(forced)) for place, is_on, forced in _rows(connection, _ALL_TABLES) if is_on]
    policies = [
        (f"`{place}`", name, command, _list(map(_short, roles)), _code(using), _code(check))
        for place, name, command, roles, using, check in _rows(connection, _POLICIES)
    ]
    head = ("table", "policy", "for", "roles", "sees or changes", "leaves behind")
    return ["## Row security", "", *_table(("table", "on", "for the owner too"), on), "", *_table(head, policies)]


def _triggers(connection: psycopg.Connection[Any]) -> list[str]:
    rows = [(f"`{place}`", *rest) for place, *rest in _rows(connection, _TRIGGERS)]
    return ["## Triggers", "", *_table(("table", "trigger", "when", "for each", "fires"), rows)]


def _rows(connection: psycopg.Connection[Any], query: LiteralString) -> list[tuple[Any, ...]]:
    return connection.execute(query).fetchall()


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    return [f"| {' | '.join(each)} |" for each in (head, ["---"] * len(head), *rows)]


def _short(role: str) -> str:
    return role.removeprefix("minutebook_")


def _yes(value: bool) -> str:
    return "yes" if value else "no"


def _list(names: Iterable[str]) -> str:
    return ", ".join(names) or "nobody"


def _code(text: str) -> str:
    return f"`{' '.join(text.split()).replace('|', chr(92) + '|')}`" if text else ""
