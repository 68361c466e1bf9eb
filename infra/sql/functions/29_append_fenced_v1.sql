-- append_plain_v1 for a batch of which some items are fenced on the lease of the stream that they append to: what a run's
-- bridge pushes. The leases are renewed under the streams' locks, in the transaction that stores the events.
--
-- p_fences: [{i, purpose, holder, epoch}], i the 1-based place in p_streams; each lease once.
-- Answers as append_plain_v1; NULL also where a lease is not held as claimed: then nothing was appended, and append_v1 has
-- to tell who lost.
CREATE OR REPLACE FUNCTION minutebook.append_fenced_v1(
    p_streams text[], p_first bigint[], p_count integer, p_events json, p_fences json, p_notify boolean DEFAULT true)
RETURNS text
LANGUAGE plpgsql SECURITY DEFINER
    SET search_path = pg_catalog, pg_temp
    SET plan_cache_mode = force_generic_plan
    SET enable_hashjoin = off
    SET enable_mergejoin = off
    SET enable_seqscan = off
    SET enable_bitmapscan = off
AS $$
DECLARE
    v_fence record;
BEGIN
    IF current_setting('transaction_isolation') <> 'read committed' THEN
        RAISE EXCEPTION 'append_fenced_v1 runs under READ COMMITTED only' USING ERRCODE = 'MB005';
    END IF;
    -- "+ 0": see append_v1.
    PERFORM FROM minutebook.streams s WHERE s.name = ANY (p_streams) ORDER BY s.id + 0 FOR NO KEY UPDATE;
    FOR v_fence IN
        SELECT f.* FROM json_to_recordset(p_fences) AS f (i integer, purpose text, holder text, epoch bigint)
    LOOP
        UPDATE minutebook.leases l SET seen_at = clock_timestamp()
        WHERE l.stream_id = (SELECT s.id FROM minutebook.streams s WHERE s.name = p_streams[v_fence.i])
          AND l.purpose = v_fence.purpose AND l.holder = v_fence.holder AND l.epoch = v_fence.epoch;
        IF NOT FOUND THEN
            RETURN NULL;
        END IF;
    END LOOP;
    RETURN minutebook.append_plain_v1(p_streams, p_first, p_count, p_events, p_notify);
END
$$;
ALTER FUNCTION minutebook.append_fenced_v1(text[], bigint[], integer, json, json, boolean) OWNER TO minutebook_owner;
REVOKE ALL ON FUNCTION minutebook.append_fenced_v1(text[], bigint[], integer, json, json, boolean) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION minutebook.append_fenced_v1(text[], bigint[], integer, json, json, boolean) TO minutebook_app;
