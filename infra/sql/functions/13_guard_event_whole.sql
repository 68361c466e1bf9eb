-- A stream goes whole or not at all: a deletion that leaves events of a stream behind is refused. The streams' rows are
-- locked and looked at again, so that a hold that is set meanwhile either stops the deletion or comes after it; with the
-- owner's eyes, since a stream that is held now is hidden from retention, and what is left of it would be, too.
CREATE OR REPLACE FUNCTION minutebook.is_purge_whole(p_stream_ids bigint[]) RETURNS boolean
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    PERFORM FROM minutebook.streams s WHERE s.id = ANY (p_stream_ids) ORDER BY s.id FOR UPDATE;
    RETURN NOT EXISTS (
        SELECT FROM unnest(p_stream_ids) AS d (id)
        LEFT JOIN minutebook.streams s ON s.id = d.id
        WHERE (s.sealed AND NOT s.held
               AND s.closed_at + make_interval(days => s.retention_days) <= clock_timestamp()) IS NOT TRUE
           OR EXISTS (SELECT FROM minutebook.events e WHERE e.stream_id = d.id));
END
$$;
ALTER FUNCTION minutebook.is_purge_whole(bigint[]) OWNER TO minutebook_owner;
REVOKE ALL ON FUNCTION minutebook.is_purge_whole(bigint[]) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION minutebook.is_purge_whole(bigint[]) TO minutebook_retention;

CREATE OR REPLACE FUNCTION minutebook.guard_event_whole() RETURNS trigger
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    IF NOT minutebook.is_purge_whole(ARRAY(SELECT DISTINCT d.stream_id FROM deleted d)) THEN
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
