-- Roles of the house and the two schemas. Roles are shared by every database of a cluster, so each may exist already.
-- The login roles have no password: the operator sets one, or maps them in pg_hba.conf (docs/howto/postgres.md).
DO $$
DECLARE
    wanted record;
    -- From 16 on, who creates a role is its member without the right to SET ROLE to it.
    v_right text := CASE WHEN pg_catalog.current_setting('server_version_num')::integer >= 160000
                         THEN 'SET' ELSE 'MEMBER' END;
BEGIN
    IF pg_catalog.getdatabaseencoding() <> 'UTF8' THEN
        RAISE EXCEPTION 'the database must have the encoding UTF8, not %', pg_catalog.getdatabaseencoding()
            USING ERRCODE = 'MB040';
    END IF;
    FOR wanted IN
        SELECT * FROM (VALUES
            ('minutebook_owner', false),
            ('minutebook_app', true),
            ('minutebook_projector', true),
            ('minutebook_retention', true),
            ('minutebook_eraser', true),
            ('minutebook_auditor', true)
        ) AS roles (name, can_login)
    LOOP
        IF NOT EXISTS (SELECT FROM pg_catalog.pg_roles WHERE rolname = wanted.name) THEN
            BEGIN
                EXECUTE pg_catalog.format(
                    'CREATE ROLE %I NOSUPERUSER NOCREATEDB NOCREATEROLE NOREPLICATION NOBYPASSRLS %s',
                    wanted.name, CASE WHEN wanted.can_login THEN 'LOGIN' ELSE 'NOLOGIN' END);
            EXCEPTION WHEN duplicate_object OR unique_violation THEN
                NULL;  -- another database of this cluster was migrated at the same moment
            END;
        END IF;
    END LOOP;
    IF NOT pg_catalog.pg_has_role(current_user, 'minutebook_owner', v_right) THEN
        EXECUTE pg_catalog.format('GRANT minutebook_owner TO %I', current_user);
    END IF;
    IF NOT pg_catalog.pg_has_role(current_user, 'minutebook_projector', v_right) THEN
        EXECUTE pg_catalog.format('GRANT minutebook_projector TO %I', current_user);
    END IF;
END
$$;

CREATE SCHEMA minutebook AUTHORIZATION minutebook_owner;
CREATE SCHEMA minutebook_views AUTHORIZATION minutebook_projector;

REVOKE ALL ON SCHEMA minutebook FROM PUBLIC;
REVOKE ALL ON SCHEMA minutebook_views FROM PUBLIC;
GRANT USAGE ON SCHEMA minutebook
    TO minutebook_app, minutebook_projector, minutebook_retention, minutebook_eraser, minutebook_auditor;
GRANT USAGE ON SCHEMA minutebook_views
    TO minutebook_app, minutebook_retention, minutebook_auditor;

-- Shadow tables of a rebuild are created by the projector and must be readable after the swap.
ALTER DEFAULT PRIVILEGES FOR ROLE minutebook_projector IN SCHEMA minutebook_views
    GRANT SELECT ON TABLES TO minutebook_app, minutebook_auditor;
ALTER DEFAULT PRIVILEGES FOR ROLE minutebook_owner REVOKE EXECUTE ON FUNCTIONS FROM PUBLIC;

-- What was applied, and in which wording. A file that was edited after it was applied stops the next migrate.
CREATE TABLE minutebook.migrations (
    name text CONSTRAINT migrations_pkey PRIMARY KEY,
    checksum text NOT NULL,
    applied_at timestamptz NOT NULL DEFAULT pg_catalog.clock_timestamp()
);
ALTER TABLE minutebook.migrations OWNER TO minutebook_owner;
GRANT SELECT ON minutebook.migrations
    TO minutebook_app, minutebook_projector, minutebook_retention, minutebook_auditor;
