-- The first half of an erasure in a conversation or in the steps of a turn, as 28_erasure.sql does it in rooms: an event
-- that names it, also behind a seal, and holds what stays of it (`left`, signed by who has the key), so that a fold is
-- what it was. Found by the key of its origin.
--
-- Outcomes: named; gone (there is no payload any more); not_found; not_words; held (a legal hold comes first).
CREATE OR REPLACE FUNCTION minutebook.name_words_erasure_v1(
    p_stream text, p_seq bigint, p_id text, p_reason text, p_redactions text[], p_left jsonb, p_is_dry boolean)
RETURNS TABLE (outcome text, stream_id bigint, named_by bigint)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_variable
DECLARE
    v_stream record;
    v_event record;
    v_outcome text;
    v_named_by bigint;
BEGIN
    IF p_is_dry THEN
        SELECT s.id, s.version, s.held INTO v_stream FROM minutebook.streams s
        WHERE s.name = p_stream AND s.kind IN ('conversation', 'turn');
    ELSE
        SELECT s.id, s.version, s.held INTO v_stream FROM minutebook.streams s
        WHERE s.name = p_stream AND s.kind IN ('conversation', 'turn') FOR UPDATE;
    END IF;
    SELECT e.payload IS NULL AS is_gone, e.type IN ('envelope_received', 'user_recorded', 'reply_recorded',
        'summary_recorded', 'model_answered', 'tool_ended') AS is_words INTO v_event
    FROM minutebook.events e WHERE e.stream_id = v_stream.id AND e.seq = p_seq;
    IF NOT FOUND THEN
        RETURN QUERY SELECT 'not_found', NULL::bigint, NULL::bigint;
        RETURN;
    END IF;
    SELECT n.seq INTO v_named_by FROM minutebook.events n
    WHERE n.origin_client = 'erased' AND n.origin_key = p_seq::text AND n.stream_id = v_stream.id;
    v_outcome := CASE WHEN NOT v_event.is_words THEN 'not_words' WHEN v_event.is_gone THEN 'gone'
        WHEN v_stream.held THEN 'held' ELSE 'named' END;
    IF v_outcome = 'named' AND NOT p_is_dry THEN
        v_named_by := v_stream.version + 1;
        -- A row without a hash is stamped as it enters (10_guard_event_insert.sql).
        INSERT INTO minutebook.events (stream_id, seq, id, type, schema_version, actor_kind, actor_id, origin,
            origin_client, origin_key, redactions, classes, payload)
        VALUES (v_stream.id, v_named_by, p_id, 'state_changed', 1, 'system', 'minutebook', 'broker',
            'erased', p_seq::text, p_redactions, '{}', jsonb_build_object('kind', 'payload_erased', 'erasedSeq', p_seq,
                'reason', p_reason, 'left', p_left));
        PERFORM pg_notify('minutebook', v_stream.id::text);
    END IF;
    RETURN QUERY SELECT v_outcome, v_stream.id, v_named_by;
END
$$;
ALTER FUNCTION minutebook.name_words_erasure_v1(text, bigint, text, text, text[], jsonb, boolean) OWNER TO minutebook_owner;
REVOKE ALL ON FUNCTION minutebook.name_words_erasure_v1(text, bigint, text, text, text[], jsonb, boolean) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION minutebook.name_words_erasure_v1(text, bigint, text, text, text[], jsonb, boolean)
    TO minutebook_eraser;
