-- The short path of append_v1: one event for one stream that exists, without key, fence or seal. A batch of one would pay
-- for everything that the long path prepares; what is decided, checked and stored is the same.
-- Outcomes: appended, conflict, sealed; the columns are those of append_v1.
CREATE OR REPLACE FUNCTION minutebook.append_one_v1(
    p_stream text, p_expected bigint, p_id text, p_type text, p_schema_version integer, p_payload jsonb,
    p_actor_kind text, p_actor_id text, p_actor_role text, p_run_id text, p_caused_by bigint, p_origin text,
    p_redactions text[], p_classes text[], p_origin_client text, p_origin_key text, p_notify boolean DEFAULT true)
RETURNS TABLE (outcome text, seq bigint, event_id text, chain text, ts text, bytes bigint, status integer, body text)
LANGUAGE plpgsql SECURITY DEFINER
    SET search_path = pg_catalog, pg_temp
    SET plan_cache_mode = force_generic_plan
    SET enable_seqscan = off
    SET enable_bitmapscan = off
AS $$
#variable_conflict use_variable
DECLARE
    v_stream record;
BEGIN
    SELECT s.id, s.version, s.sealed, s.head_hash, s.bytes, s.last_ts INTO v_stream
    FROM minutebook.streams s WHERE s.name = p_stream FOR NO KEY UPDATE;
    IF v_stream.version IS DISTINCT FROM p_expected OR v_stream.sealed THEN
        RETURN QUERY SELECT CASE WHEN v_stream.sealed THEN 'sealed' ELSE 'conflict' END, coalesce(v_stream.version, 0),
            NULL::text, encode(v_stream.head_hash, 'hex'), NULL::text, v_stream.bytes, NULL::integer, NULL::text;
        RETURN;
    END IF;
    RETURN QUERY
    INSERT INTO minutebook.events AS e (stream_id, seq, id, type, schema_version, actor_kind, actor_id, actor_role,
        run_id, caused_by, origin, ts, redactions, classes, payload, bytes, salt, commitment, origin_client, origin_key,
        prev_hash, hash)
    SELECT v_stream.id, p_expected + 1, p_id, p_type, p_schema_version, p_actor_kind, p_actor_id, p_actor_role,
        p_run_id, p_caused_by, p_origin, c.ts, p_redactions, p_classes, p_payload, octet_length(c.words), c.salt,
        c.commitment, p_origin_client, p_origin_key, v_stream.head_hash,
        minutebook.event_hash(p_stream, p_expected + 1, p_id, p_type, p_schema_version, p_actor_kind, p_actor_id,
            p_actor_role, p_run_id, p_caused_by, p_origin, c.ts, p_redactions, p_classes, p_origin_client, p_origin_key,
            c.commitment, v_stream.head_hash)
    FROM (SELECT d.ts, d.salt, d.words, sha256(d.salt || convert_to(d.words, 'UTF8')) AS commitment
          FROM (SELECT greatest(clock_timestamp(), v_stream.last_ts) AS ts, uuid_send(gen_random_uuid()) AS salt,
                    p_payload::text AS words OFFSET 0) d OFFSET 0) c
    RETURNING 'appended', e.seq, e.id, encode(e.hash, 'hex'),
        to_char(e.ts AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"'), v_stream.bytes + e.bytes, NULL::integer,
        NULL::text;
    IF p_notify THEN
        PERFORM pg_notify('minutebook', v_stream.id::text);
    END IF;
END
$$;
ALTER FUNCTION minutebook.append_one_v1(text, bigint, text, text, integer, jsonb, text, text, text, text, bigint, text,
    text[], text[], text, text, boolean) OWNER TO minutebook_owner;
REVOKE ALL ON FUNCTION minutebook.append_one_v1(text, bigint, text, text, integer, jsonb, text, text, text, text,
    bigint, text, text[], text[], text, text, boolean) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION minutebook.append_one_v1(text, bigint, text, text, integer, jsonb, text, text, text, text,
    bigint, text, text[], text[], text, text, boolean) TO minutebook_app;
