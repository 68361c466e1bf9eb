-- Whether an event may enter a sealed stream: it names an earlier one whose payload is there and that no other event names,
-- and says nothing else but, of a conversation or a turn, what stays of it without its words. Nothing but an erasure is
-- ever appended behind a seal, and each payload is named there once. What a harness pushed is none, whatever it says.
CREATE OR REPLACE FUNCTION minutebook.is_late_erasure(
    p_stream_id bigint, p_seq bigint, p_type text, p_origin text, p_payload jsonb)
RETURNS boolean
LANGUAGE plpgsql STABLE AS $$
DECLARE
    v_seq text := p_payload ->> 'erasedSeq';
BEGIN
    IF p_type <> 'state_changed' OR p_origin <> 'broker' OR p_payload ->> 'kind' IS DISTINCT FROM 'payload_erased'
        OR p_payload - ARRAY['kind', 'erasedSeq', 'reason', 'left'] <> '{}'
        OR jsonb_typeof(p_payload -> 'erasedSeq') IS DISTINCT FROM 'number' OR v_seq !~ '^[1-9][0-9]{0,17}$'
    THEN
        RETURN false;
    END IF;
    IF p_payload ? 'left' AND (NOT (p_payload -> 'left' @> '{"isErased": true}' OR p_payload -> 'left' = '{"erased": true}')
        OR coalesce(p_payload -> 'left' ->> 'text', '') <> '' OR coalesce(p_payload -> 'left' ->> 'output', '') <> ''
        OR NOT EXISTS (SELECT FROM minutebook.streams s
            WHERE s.id = p_stream_id AND s.kind IN ('conversation', 'turn')))
    THEN
        RETURN false;
    END IF;
    RETURN EXISTS (
        SELECT FROM minutebook.events e
        WHERE e.stream_id = p_stream_id AND e.seq = v_seq::bigint AND e.seq < p_seq AND e.payload IS NOT NULL)
        AND NOT EXISTS (
        SELECT FROM minutebook.events n
        WHERE n.stream_id = p_stream_id AND n.seq > v_seq::bigint AND n.seq < p_seq AND n.origin <> 'harness'
          AND n.payload @> jsonb_build_object('kind', 'payload_erased', 'erasedSeq', v_seq::bigint));
END
$$;
ALTER FUNCTION minutebook.is_late_erasure(bigint, bigint, text, text, jsonb) OWNER TO minutebook_owner;
REVOKE ALL ON FUNCTION minutebook.is_late_erasure(bigint, bigint, text, text, jsonb) FROM PUBLIC;
