"""The guards of a database held against the SQL of this version: triggers, functions, row security, grants, roles.

What must be there is read from the SQL files themselves, so a new guard is looked for as soon as it is written.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from functools import cache
from typing import Any, LiteralString, NamedTuple, get_args

import psycopg

from . import views
from .migrate import ENGINE_SCHEMA, sql_files
from .pool import RoleName

ROLES = tuple(f"minutebook_{name}" for name in get_args(RoleName))
OWNERS = {"minutebook": "minutebook_owner", views.SCHEMA: "minutebook_projector", ENGINE_SCHEMA: "minutebook_owner"}

ENGINE_GRANTS = {
    "r": {
        "minutebook_app": ("SELECT", "INSERT", "UPDATE", "DELETE"),
        "minutebook_projector": ("SELECT", "INSERT"),
        "minutebook_auditor": ("SELECT",),
    },
    "S": {"minutebook_app": ("USAGE",), "minutebook_projector": ("USAGE",)},
}
"""What 0005_jobs.sql lets roles do with every table (r) and sequence (S) that the job engine makes."""

Connection = psycopg.Connection[tuple[Any, ...]]

_TRIGGER = re.compile(
    r"CREATE (?:OR REPLACE )?TRIGGER (\w+) (BEFORE|AFTER) ([A-Z ]+?) ON minutebook\.(\w+) (.+?)(?:;|$)", re.DOTALL
)
_FUNCTION = re.compile(r"CREATE OR REPLACE FUNCTION minutebook\.(\w+)\((.*?)AS \$\$(.*?)\$\$;", re.DOTALL)
_AGGREGATE = re.compile(
    r"CREATE OR REPLACE AGGREGATE minutebook\.(\w+)\([^)]*\) "
    r"\( SFUNC = (minutebook\.\w+), STYPE = (\w+), PARALLEL = SAFE\);"
)
_EXECUTE = re.compile(r"GRANT EXECUTE ON FUNCTION minutebook\.(\w+)\([^)]*\)\s+TO ([^;]+);")
_SECURITY = re.compile(r"ALTER TABLE minutebook\.(\w+) (ENABLE|FORCE) ROW LEVEL SECURITY;")
_POLICY = re.compile(r"CREATE POLICY (\w+) ON minutebook\.(\w+)(?: FOR (\w+))?\s+TO ([\w, \n]+?)\s+(?:USING|WITH)\b")
_GRANT = re.compile(
    r"^(GRANT|REVOKE) ((?:SELECT|INSERT|UPDATE|DELETE)\b[^;]*?) ON ([^;]*?)\s+(?:TO|FROM) ([^;]+?);", re.MULTILINE
)
_PRIVILEGE = re.compile(r"([A-Z]+)(?:\s*\(([^)]*)\))?")
_COMMENT = re.compile(r"--[^\n]*")


class Grant(NamedTuple):
    """One privilege: `SELECT`, or `SELECT (column)`."""

    role: str
    privilege: str
    table: str

    def __str__(self) -> str:
        return f"{self.role} {self.privilege} on {self.table}"


@cache
def _text() -> str:
    return "\n".join(file.text for file in sql_files())


@cache
def _plain() -> str:
    return " ".join(_COMMENT.sub("", _text()).split())


def trigger_faults(connection: Connection) -> list[str]:
    """Triggers that are missing, others than they should be, unknown, or not ENABLE ALWAYS."""
    wanted = {found[0]: _trigger(found) for found in _TRIGGER.findall(_plain())}
    rows = connection.execute(
        "SELECT t.tgname, pg_get_triggerdef(t.oid), t.tgenabled::text, c.relname FROM pg_trigger t"
        " JOIN pg_class c ON c.oid = t.tgrelid"
        " WHERE NOT t.tgisinternal AND c.relnamespace = 'minutebook'::regnamespace"
    ).fetchall()
    have = {name: (definition, mode, table) for name, definition, mode, table in rows}
    faults = [f"trigger {name} is missing" for name in sorted(wanted.keys() - have.keys())]
    for name, (definition, mode, table) in sorted(have.items()):
        if name not in wanted:
            faults.append(f"trigger {name} on {table} is unknown")
        elif [_trigger(found) for found in _TRIGGER.findall(definition)] != [wanted[name]]:
            faults.append(f"trigger {name} is not the one of this version")
        elif mode != "A":
            faults.append(f"trigger {name} is not ENABLE ALWAYS")
    return faults


def _trigger(found: Iterable[str]) -> tuple[Any, ...]:
    """Comparable, though PostgreSQL orders the events and writes a WHEN clause in its own way."""
    name, timing, events, table, rest = found
    return name, timing, frozenset(events.split(" OR ")), table, re.sub(r"[()\s]", "", rest).lower()


def function_faults(connection: Connection) -> list[str]:
    """Functions that are missing or altered, that PUBLIC or others may call, or whose search_path is the caller's."""
    granted = {name: frozenset(_names(roles)) for name, roles in _EXECUTE.findall(_text())}
    wanted = {name: ("SECURITY DEFINER" in head, body) for name, head, body in _FUNCTION.findall(_text())}
    wanted |= {name: (False, f"{step} {state}") for name, step, state in _AGGREGATE.findall(_plain())}
    rows = connection.execute(
        "SELECT p.proname, p.prosecdef, coalesce((SELECT concat_ws(' ', g.aggtransfn::text, g.aggtranstype::regtype,"
        "   nullif(g.aggfinalfn::oid, 0), g.agginitval) FROM pg_aggregate g WHERE g.aggfnoid = p.oid), p.prosrc),"
        " coalesce(p.proconfig::text, ''), pg_get_userbyid(p.proowner),"
        " ARRAY(SELECT coalesce(r.rolname, 'PUBLIC')::text"
        "   FROM aclexplode(coalesce(p.proacl, acldefault('f', p.proowner))) a"
        "   LEFT JOIN pg_roles r ON r.oid = a.grantee WHERE a.grantee <> p.proowner)"
        " FROM pg_proc p WHERE p.pronamespace = 'minutebook'::regnamespace ORDER BY 1"
    ).fetchall()
    faults = [f"function {name} is missing" for name in sorted(wanted.keys() - {row[0] for row in rows})]
    for name, definer, body, settings, owner, callers in rows:
        if name not in wanted:
            faults.append(f"function {name} is unknown")
            continue
        if wanted[name] != (definer, body) or owner != OWNERS["minutebook"]:
            faults.append(f"function {name} is not the one of this version")
        if definer and "search_path=pg_catalog, pg_temp" not in settings:
            faults.append(f"function {name} runs with its owner's rights and its caller's search_path")
        may_call = granted.get(name, frozenset[str]())
        faults += [f"{role} may call function {name}" for role in callers if role not in may_call]
        faults += [f"{role} may not call function {name}" for role in sorted(may_call.difference(callers))]
    return faults


def row_security_faults(connection: Connection) -> list[str]:
    """Tables whose row security is off or not forced, and policies that are missing, unknown or for others."""
    flags = set[tuple[str, str]](_SECURITY.findall(_text()))
    rows = connection.execute(
        "SELECT c.relname, c.relrowsecurity, c.relforcerowsecurity FROM pg_class c"
        " WHERE c.relnamespace = 'minutebook'::regnamespace AND c.relkind = 'r' ORDER BY 1"
    ).fetchall()
    faults = [
        f"row security of {table} is not {'on' if flag == 'ENABLE' else 'forced'}"
        for table, is_on, is_forced in rows
        for flag, holds in (("ENABLE", is_on), ("FORCE", is_forced))
        if (table, flag) in flags and not holds
    ]
    wanted = {
        (name, table, (command or "ALL").upper(), frozenset(_names(roles)))
        for name, table, command, roles in _POLICY.findall(_text())
    }
    have = {
        (name, table, command, frozenset(roles))
        for name, table, command, roles in connection.execute(
            "SELECT policyname::text, tablename::text, cmd, roles::text[] FROM pg_policies"
            " WHERE schemaname = 'minutebook'"
        )
    }
    faults += [f"policy {each[0]} of {each[1]} is missing or other" for each in sorted(wanted - have, key=str)]
    return faults + [f"policy {each[0]} of {each[1]} is unknown" for each in sorted(have - wanted, key=str)]


def grant_faults(connection: Connection) -> list[str]:
    """Privileges on tables that are missing, or that nothing grants. Another role's SELECT is the operator's affair."""
    tables = [
        row[0]
        for row in connection.execute(
            "SELECT c.relname FROM pg_class c WHERE c.relnamespace = %s::regnamespace AND c.relkind = 'r'",
            (views.SCHEMA,),
        )
        if not row[0].endswith(views.SHADOW)
    ]
    wanted = {*_wanted_grants([f"{views.SCHEMA}.{table}" for table in tables]), *_engine_grants(connection)}
    have = {
        Grant(*row) for row in connection.execute(_HAVE_GRANTS, {"schemas": list(OWNERS), "not": f"%{views.SHADOW}"})
    }
    faults = [f"missing: {grant}" for grant in sorted(wanted - have)]
    foreign = {grant for grant in have if grant.role not in (*ROLES, "PUBLIC") and grant.privilege.startswith("SELECT")}
    return faults + [f"too much: {grant}" for grant in sorted(have - wanted - foreign)]


def _engine_grants(connection: Connection) -> Iterator[Grant]:
    for name, kind in connection.execute(
        "SELECT format('%%I.%%I', %(schema)s::text, c.relname), c.relkind::text FROM pg_class c"
        " WHERE c.relnamespace = %(schema)s::text::regnamespace AND c.relkind IN ('r', 'S')"
        " AND c.relname LIKE 'procrastinate%%'",
        {"schema": ENGINE_SCHEMA},
    ):
        yield from (Grant(role, privilege, name) for role, held in ENGINE_GRANTS[kind].items() for privilege in held)


_HAVE_GRANTS: LiteralString = """
WITH tables AS (
    SELECT c.oid, c.relkind, c.relacl, c.relowner, format('%%I.%%I', n.nspname, c.relname) AS name
    FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
    WHERE n.nspname = ANY (%(schemas)s) AND c.relkind IN ('r', 'v', 'm', 'p', 'S') AND c.relname NOT LIKE %(not)s
), acls AS (
    SELECT t.name, t.relowner, '' AS place,
        coalesce(t.relacl, acldefault(CASE t.relkind WHEN 'S' THEN 's'::"char" ELSE 'r'::"char" END, t.relowner)) AS acl
    FROM tables t
    UNION ALL
    SELECT t.name, t.relowner, format(' (%%s)', a.attname), a.attacl
    FROM tables t JOIN pg_attribute a ON a.attrelid = t.oid WHERE a.attacl IS NOT NULL AND NOT a.attisdropped
)
SELECT coalesce(r.rolname, 'PUBLIC')::text, x.privilege_type || s.place, s.name
FROM acls s CROSS JOIN LATERAL aclexplode(s.acl) x LEFT JOIN pg_roles r ON r.oid = x.grantee
WHERE x.grantee <> s.relowner
"""


def _wanted_grants(view_tables: list[str]) -> set[Grant]:
    """What the files grant and no later one revokes."""
    defaults = "".join(f"GRANT SELECT ON {table} TO minutebook_app, minutebook_auditor;\n" for table in view_tables)
    wanted: set[Grant] = set()
    for verb, privileges, objects, roles in _GRANT.findall(_COMMENT.sub("", _text()) + "\n" + defaults):
        tables = view_tables if "ALL TABLES IN SCHEMA" in objects else _names(objects)
        for privilege, columns in _PRIVILEGE.findall(privileges):
            places = [f" ({column})" for column in _names(columns)] or [""]
            said = {
                Grant(role, privilege + place, table) for role in _names(roles) for table in tables for place in places
            }
            wanted = wanted | said if verb == "GRANT" else wanted - said
    return wanted


def _names(text: str) -> list[str]:
    return [name.strip() for name in text.split(",") if name.strip()]


def role_faults(connection: Connection) -> list[str]:
    """Roles that are missing or could pass the guards by, and tables or schemas that are not their owner's alone."""
    rows = connection.execute(
        "SELECT r.rolname, r.rolsuper, r.rolbypassrls, r.rolcreaterole, r.rolcreatedb, r.rolreplication,"
        " r.rolcanlogin AND r.rolname = 'minutebook_owner' FROM pg_roles r WHERE r.rolname = ANY (%s) ORDER BY 1",
        (list(ROLES),),
    ).fetchall()
    rights = (
        "is a superuser",
        "has BYPASSRLS",
        "may create roles",
        "may create databases",
        "may replicate",
        "may log in",
    )
    faults = [f"role {name} is missing" for name in ROLES if name not in {row[0] for row in rows}]
    faults += [f"{row[0]} {right}" for row in rows for right, has in zip(rights, row[1:], strict=True) if has]
    faults += [
        f"{member} is a member of {role}"
        for member, role in connection.execute(
            "SELECT m.rolname, r.rolname FROM pg_auth_members a JOIN pg_roles m ON m.oid = a.member"
            " JOIN pg_roles r ON r.oid = a.roleid WHERE m.rolname = ANY (%(roles)s) AND r.rolname = ANY (%(roles)s)",
            {"roles": list(ROLES)},
        )
    ]
    for schema, owner in OWNERS.items():
        found = connection.execute(
            "SELECT format('%%I.%%I', %(schema)s::text, c.relname), pg_get_userbyid(c.relowner) FROM pg_class c"
            " WHERE c.relnamespace = %(schema)s::text::regnamespace AND c.relkind IN ('r', 'S', 'v', 'm')"
            " AND pg_get_userbyid(c.relowner) <> %(owner)s",
            {"schema": schema, "owner": owner},
        )
        faults += [f"{name} belongs to {other}, not to {owner}" for name, other in found]
        makers = connection.execute(
            "SELECT r.rolname FROM pg_roles r WHERE r.rolname = ANY (%(roles)s) AND r.rolname <> %(owner)s::text"
            " AND has_schema_privilege(r.oid, %(schema)s::text, 'CREATE')",
            {"roles": list(ROLES), "schema": schema, "owner": owner},
        )
        faults += [f"{name} may create in schema {schema}" for (name,) in makers]
    return faults
