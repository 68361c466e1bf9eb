-- An erasure takes what a snapshot keeps of the payload with it, in the same transaction. What stands in its place refuses
-- a snapshot that a server folded before it knew of the erasure (the store replaces it only by one that reaches further).
CREATE OR REPLACE FUNCTION minutebook.forget_snapshot() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    INSERT INTO minutebook.snapshots AS n (stream_id, seq, schema, state)
    SELECT s.id, s.version, 'erased', '{}' FROM minutebook.streams s WHERE s.id = NEW.stream_id
    ON CONFLICT ON CONSTRAINT snapshots_pkey DO UPDATE
        SET seq = greatest(n.seq, EXCLUDED.seq), schema = EXCLUDED.schema, state = EXCLUDED.state;
    RETURN NULL;
END
$$;
ALTER FUNCTION minutebook.forget_snapshot() OWNER TO minutebook_owner;
REVOKE ALL ON FUNCTION minutebook.forget_snapshot() FROM PUBLIC;

CREATE OR REPLACE TRIGGER events_forget_snapshot AFTER UPDATE ON minutebook.events
    FOR EACH ROW EXECUTE FUNCTION minutebook.forget_snapshot();
ALTER TABLE minutebook.events ENABLE ALWAYS TRIGGER events_forget_snapshot;

-- The first half of an erasure, in the transaction of the second, in which the eraser takes the payload away: an event
-- that names it, also behind a seal (05_is_late_erasure.sql), unless one does already. Only words can be erased, so that
-- a room is what it was without them: messages, handoffs, calls and results of tools, reports of a harness.
--
-- Outcomes: named; gone (there is no payload any more); not_found; not_words; held (a legal hold comes first). `copies`:
-- streams that were forked from this one at or behind p_seq, whatever the outcome is. p_is_dry: only look.
--
-- The stream's row is locked against forks too: one that is being made is waited for, so that it is among the copies; one
-- that is made later copies what is there then. One stream at a time, so that nobody waits in a circle.
CREATE OR REPLACE FUNCTION minutebook.name_erasure_v1(
    p_stream text, p_seq bigint, p_id text, p_reason text, p_redactions text[], p_is_dry boolean)
RETURNS TABLE (outcome text, stream_id bigint, named_by bigint, copies text[])
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_variable
DECLARE
    v_stream record;
    v_event record;
    v_outcome text;
    v_named_by bigint;
    v_copies text[];
BEGIN
    IF p_is_dry THEN
        SELECT s.id, s.version, s.held INTO v_stream FROM minutebook.streams s WHERE s.name = p_stream AND s.kind = 'room';
    ELSE
        SELECT s.id, s.version, s.held INTO v_stream FROM minutebook.streams s WHERE s.name = p_stream AND s.kind = 'room'
        FOR UPDATE;
    END IF;
    SELECT e.payload IS NULL AS is_gone, e.type IN ('message', 'handoff', 'tool_call', 'tool_result')
        OR (e.type = 'state_changed' AND e.origin = 'harness') AS is_words INTO v_event
    FROM minutebook.events e WHERE e.stream_id = v_stream.id AND e.seq = p_seq;
    IF NOT FOUND THEN
        RETURN QUERY SELECT 'not_found', NULL::bigint, NULL::bigint, '{}'::text[];
        RETURN;
    END IF;
    SELECT coalesce(array_agg(s.name ORDER BY s.id), '{}') INTO v_copies
    FROM minutebook.forks f JOIN minutebook.streams s ON s.id = f.stream_id
    WHERE f.source_id = v_stream.id AND f.through_seq >= p_seq;
    SELECT max(n.seq) INTO v_named_by FROM minutebook.events n
    WHERE n.stream_id = v_stream.id AND n.seq > p_seq AND n.origin <> 'harness'
      AND n.payload @> jsonb_build_object('kind', 'payload_erased', 'erasedSeq', p_seq);
    v_outcome := CASE WHEN NOT v_event.is_words THEN 'not_words' WHEN v_event.is_gone THEN 'gone'
        WHEN v_stream.held THEN 'held' ELSE 'named' END;
    IF v_outcome = 'named' AND NOT p_is_dry AND v_named_by IS NULL THEN
        v_named_by := v_stream.version + 1;
        -- A row without a hash is stamped as it enters (10_guard_event_insert.sql).
        INSERT INTO minutebook.events (stream_id, seq, id, type, schema_version, actor_kind, actor_id, origin,
            redactions, classes, payload)
        VALUES (v_stream.id, v_named_by, p_id, 'state_changed', 1, 'system', 'minutebook', 'broker', p_redactions, '{}',
            jsonb_build_object('kind', 'payload_erased', 'erasedSeq', p_seq, 'reason', p_reason));
    END IF;
    IF v_outcome = 'named' AND NOT p_is_dry THEN
        PERFORM pg_notify('minutebook', v_stream.id::text);
    END IF;
    RETURN QUERY SELECT v_outcome, v_stream.id, v_named_by, v_copies;
END
$$;
ALTER FUNCTION minutebook.name_erasure_v1(text, bigint, text, text, text[], boolean) OWNER TO minutebook_owner;
REVOKE ALL ON FUNCTION minutebook.name_erasure_v1(text, bigint, text, text, text[], boolean) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION minutebook.name_erasure_v1(text, bigint, text, text, text[], boolean) TO minutebook_eraser;
