-- A stream goes whole or not at all: a deletion that leaves events of a stream behind is refused.
CREATE OR REPLACE FUNCTION minutebook.guard_event_whole() RETURNS trigger
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    IF EXISTS (SELECT FROM minutebook.events e WHERE e.stream_id IN (SELECT d.stream_id FROM deleted d)) THEN
        RAISE EXCEPTION 'the log is append-only: a stream is deleted whole or not at all' USING ERRCODE = 'MB010';
    END IF;
    RETURN NULL;
END
$$;
ALTER FUNCTION minutebook.guard_event_whole() OWNER TO minutebook_owner;
REVOKE ALL ON FUNCTION minutebook.guard_event_whole() FROM PUBLIC;

CREATE OR REPLACE TRIGGER events_guard_whole AFTER DELETE ON minutebook.events
    REFERENCING OLD TABLE AS deleted FOR EACH STATEMENT EXECUTE FUNCTION minutebook.guard_event_whole();
ALTER TABLE minutebook.events ENABLE ALWAYS TRIGGER events_guard_whole;
