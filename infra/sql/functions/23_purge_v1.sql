-- Retention, one stream at a time: everything that an expired stream left, in one transaction. Runs with the rights of
-- the retention role alone; row-level security and the guards decide what may go. Answers the events deleted, or NULL
-- where the stream is not (or no longer) expired.
CREATE OR REPLACE FUNCTION minutebook.purge_stream_v1(p_stream_id bigint) RETURNS bigint
LANGUAGE plpgsql SECURITY INVOKER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    v_events bigint;
    v_view text;
    v_name text;
    v_audit bigint;
BEGIN
    -- rebuild.py makes, drops and swaps views under this lock: the list below stays true until the end.
    PERFORM pg_advisory_xact_lock_shared(7215004);
    SELECT s.name INTO v_name FROM minutebook.streams s WHERE s.id = p_stream_id;
    IF NOT FOUND THEN
        RETURN NULL;
    END IF;
    DELETE FROM minutebook.events e WHERE e.stream_id = p_stream_id;
    GET DIAGNOSTICS v_events = ROW_COUNT;
    DELETE FROM minutebook.idempotency k WHERE k.stream_id = p_stream_id;
    DELETE FROM minutebook.leases l WHERE l.stream_id = p_stream_id;
    DELETE FROM minutebook.snapshots n WHERE n.stream_id = p_stream_id;
    DELETE FROM minutebook.deltas d WHERE d.stream_id = p_stream_id;
    DELETE FROM minutebook.token_reservations r
    WHERE r.execution = (SELECT substr(s.name, 6) FROM minutebook.streams s WHERE s.id = p_stream_id AND s.kind = 'turn');
    FOR v_view IN
        SELECT c.relname FROM pg_class c
        WHERE c.relnamespace = 'minutebook_views'::regnamespace AND c.relkind = 'r' ORDER BY 1
    LOOP
        EXECUTE format('DELETE FROM minutebook_views.%I WHERE stream_id = $1', v_view) USING p_stream_id;
    END LOOP;
    DELETE FROM minutebook.streams s WHERE s.id = p_stream_id;
    IF NOT FOUND THEN
        RAISE EXCEPTION 'the stream stayed although its events went' USING ERRCODE = 'MB030';
    END IF;
    -- Who looked into a conversation goes with it (38_conversation_past.sql).
    IF v_name LIKE 'conversation:%' THEN
        SELECT s.id INTO v_audit FROM minutebook.streams s WHERE s.name = 'audit:' || substr(v_name, 14);
        v_events := v_events + coalesce(minutebook.purge_stream_v1(v_audit), 0);
    END IF;
    RETURN v_events;
END
$$;
ALTER FUNCTION minutebook.purge_stream_v1(bigint) OWNER TO minutebook_owner;
REVOKE ALL ON FUNCTION minutebook.purge_stream_v1(bigint) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION minutebook.purge_stream_v1(bigint) TO minutebook_retention;
