-- Row-level security hides every row from an UPDATE or DELETE of the owner, so row triggers would let it pass as a silent
-- "0 rows". These see the statement and refuse it aloud, whatever it would have touched.
CREATE OR REPLACE FUNCTION minutebook.guard_statement() RETURNS trigger
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    IF (TG_OP = 'UPDATE' AND current_user = 'minutebook_eraser')
        OR (TG_OP = 'DELETE' AND current_user = 'minutebook_retention')
    THEN
        RETURN NULL;
    ELSIF TG_TABLE_NAME = 'streams' THEN
        RAISE EXCEPTION 'a stream is deleted by retention alone, after its events' USING ERRCODE = 'MB020';
    END IF;
    RAISE EXCEPTION 'the log is append-only: % of events is refused', TG_OP USING ERRCODE = 'MB010';
END
$$;
ALTER FUNCTION minutebook.guard_statement() OWNER TO minutebook_owner;
REVOKE ALL ON FUNCTION minutebook.guard_statement() FROM PUBLIC;

CREATE OR REPLACE TRIGGER events_guard_statement BEFORE UPDATE OR DELETE ON minutebook.events
    FOR EACH STATEMENT EXECUTE FUNCTION minutebook.guard_statement();
ALTER TABLE minutebook.events ENABLE ALWAYS TRIGGER events_guard_statement;
CREATE OR REPLACE TRIGGER streams_guard_statement BEFORE DELETE ON minutebook.streams
    FOR EACH STATEMENT EXECUTE FUNCTION minutebook.guard_statement();
ALTER TABLE minutebook.streams ENABLE ALWAYS TRIGGER streams_guard_statement;
