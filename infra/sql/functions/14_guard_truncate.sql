-- TRUNCATE passes row triggers by, so it has its own.
CREATE OR REPLACE FUNCTION minutebook.guard_truncate() RETURNS trigger
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    RAISE EXCEPTION 'the log is append-only: TRUNCATE is refused' USING ERRCODE = 'MB010';
END
$$;
ALTER FUNCTION minutebook.guard_truncate() OWNER TO minutebook_owner;
REVOKE ALL ON FUNCTION minutebook.guard_truncate() FROM PUBLIC;

CREATE OR REPLACE TRIGGER events_guard_truncate BEFORE TRUNCATE ON minutebook.events
    FOR EACH STATEMENT EXECUTE FUNCTION minutebook.guard_truncate();
ALTER TABLE minutebook.events ENABLE ALWAYS TRIGGER events_guard_truncate;
CREATE OR REPLACE TRIGGER streams_guard_truncate BEFORE TRUNCATE ON minutebook.streams
    FOR EACH STATEMENT EXECUTE FUNCTION minutebook.guard_truncate();
ALTER TABLE minutebook.streams ENABLE ALWAYS TRIGGER streams_guard_truncate;
