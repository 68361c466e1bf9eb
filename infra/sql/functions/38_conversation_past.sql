-- The last event of a stream that was recorded up to a moment, 0 where there is none: times never run back, so that a
-- search by halves over the primary key finds it.
CREATE OR REPLACE FUNCTION minutebook.seq_at_v1(p_stream_id bigint, p_at timestamptz) RETURNS bigint
LANGUAGE plpgsql STABLE SECURITY INVOKER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    v_low bigint := 0;
    v_high bigint := (SELECT s.version FROM minutebook.streams s WHERE s.id = p_stream_id);
    v_middle bigint;
BEGIN
    WHILE v_low < v_high LOOP
        v_middle := (v_low + v_high + 1) / 2;
        IF (SELECT e.ts FROM minutebook.events e WHERE e.stream_id = p_stream_id AND e.seq = v_middle) <= p_at THEN
            v_low := v_middle;
        ELSE
            v_high := v_middle - 1;
        END IF;
    END LOOP;
    RETURN v_low;
END
$$;
ALTER FUNCTION minutebook.seq_at_v1(bigint, timestamptz) OWNER TO minutebook_owner;
REVOKE ALL ON FUNCTION minutebook.seq_at_v1(bigint, timestamptz) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION minutebook.seq_at_v1(bigint, timestamptz) TO minutebook_app;

-- Who looked into a conversation is written in a stream of its own, which stays open behind the conversation's seal.
-- When retention deletes the conversation, that stream is sealed as of the conversation's end, and goes with it
-- (23_purge_v1.sql).
CREATE OR REPLACE FUNCTION minutebook.seal_audit() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    UPDATE minutebook.streams s SET sealed = true, closed_at = OLD.closed_at
    WHERE s.name = 'audit:' || substr(OLD.name, 14) AND s.kind = 'audit' AND NOT s.sealed;
    RETURN NULL;
END
$$;
ALTER FUNCTION minutebook.seal_audit() OWNER TO minutebook_owner;
REVOKE ALL ON FUNCTION minutebook.seal_audit() FROM PUBLIC;

CREATE OR REPLACE TRIGGER streams_seal_audit AFTER DELETE ON minutebook.streams
    FOR EACH ROW WHEN (OLD.kind = 'conversation'::text) EXECUTE FUNCTION minutebook.seal_audit();
ALTER TABLE minutebook.streams ENABLE ALWAYS TRIGGER streams_seal_audit;
