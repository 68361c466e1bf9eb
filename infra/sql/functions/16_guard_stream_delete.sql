-- A stream goes by the retention role alone, when it is sealed, past its days and under no hold, and after its events.
CREATE OR REPLACE FUNCTION minutebook.guard_stream_delete() RETURNS trigger
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    IF current_user <> 'minutebook_retention' OR NOT OLD.sealed OR OLD.held
        OR (OLD.closed_at + make_interval(days => OLD.retention_days) <= clock_timestamp()) IS NOT TRUE
        OR EXISTS (SELECT FROM minutebook.events e WHERE e.stream_id = OLD.id)
    THEN
        RAISE EXCEPTION 'a stream is deleted by retention alone, after its events' USING ERRCODE = 'MB020';
    END IF;
    RETURN OLD;
END
$$;
ALTER FUNCTION minutebook.guard_stream_delete() OWNER TO minutebook_owner;
REVOKE ALL ON FUNCTION minutebook.guard_stream_delete() FROM PUBLIC;

CREATE OR REPLACE TRIGGER streams_guard_delete BEFORE DELETE ON minutebook.streams
    FOR EACH ROW EXECUTE FUNCTION minutebook.guard_stream_delete();
ALTER TABLE minutebook.streams ENABLE ALWAYS TRIGGER streams_guard_delete;
