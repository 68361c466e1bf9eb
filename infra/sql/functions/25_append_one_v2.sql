-- The short path of append_v1: one event for one stream that exists, without key, fence or seal. A batch of one would pay
-- for everything that the long path prepares; what is decided, checked and stored is the same.
-- Answers "outcome seq chain ts bytes", words empty that are null; outcome is appended, conflict or sealed. One text, since
-- rows from a function cost a quarter of the call.
DROP FUNCTION IF EXISTS minutebook.append_one_v1(text, bigint, text, text, integer, jsonb, text, text, text, text, bigint,
    text, text[], text[], text, text, boolean);
CREATE OR REPLACE FUNCTION minutebook.append_one_v2(
    p_stream text, p_expected bigint, p_id text, p_type text, p_schema_version integer, p_payload jsonb,
    p_actor_kind text, p_actor_id text, p_actor_role text, p_run_id text, p_caused_by bigint, p_origin text,
    p_redactions text[], p_classes text[], p_origin_client text, p_origin_key text, p_notify boolean DEFAULT true)
RETURNS text
LANGUAGE plpgsql SECURITY DEFINER
    SET search_path = pg_catalog, pg_temp
    SET plan_cache_mode = force_generic_plan
    SET enable_seqscan = off
    SET enable_bitmapscan = off
AS $$
DECLARE
    v_stream record;
    v_words text := p_payload::text;
    v_salt bytea := uuid_send(gen_random_uuid());
    v_commitment bytea;
    v_ts timestamptz;
    v_hash bytea;
BEGIN
    IF current_setting('transaction_isolation') <> 'read committed' THEN
        RAISE EXCEPTION 'append_one_v2 runs under READ COMMITTED only' USING ERRCODE = 'MB005';
    END IF;
    SELECT s.id, s.version, s.sealed, s.head_hash, s.bytes, s.last_ts INTO v_stream
    FROM minutebook.streams s WHERE s.name = p_stream FOR NO KEY UPDATE;
    IF v_stream.version IS DISTINCT FROM p_expected OR v_stream.sealed THEN
        RETURN concat(CASE WHEN v_stream.sealed THEN 'sealed ' ELSE 'conflict ' END, coalesce(v_stream.version, 0), ' ',
            encode(v_stream.head_hash, 'hex'), '  ', v_stream.bytes);
    ELSIF v_words IS NULL OR v_words = 'null' THEN  -- as append_v1, which reads a JSON null as none
        RAISE EXCEPTION 'an event enters the log with its payload' USING ERRCODE = 'MB004';
    END IF;
    v_commitment := sha256(v_salt || convert_to(v_words, 'UTF8'));
    v_ts := greatest(clock_timestamp(), v_stream.last_ts);
    v_hash := minutebook.event_hash(p_stream, p_expected + 1, p_id, p_type, p_schema_version, p_actor_kind, p_actor_id,
        p_actor_role, p_run_id, p_caused_by, p_origin, v_ts, p_redactions, p_classes, p_origin_client, p_origin_key,
        v_commitment, v_stream.head_hash);
    INSERT INTO minutebook.events (stream_id, seq, id, type, schema_version, actor_kind, actor_id, actor_role,
        run_id, caused_by, origin, ts, redactions, classes, payload, bytes, salt, commitment, origin_client, origin_key,
        prev_hash, hash)
    VALUES (v_stream.id, p_expected + 1, p_id, p_type, p_schema_version, p_actor_kind, p_actor_id, p_actor_role,
        p_run_id, p_caused_by, p_origin, v_ts, p_redactions, p_classes, p_payload, octet_length(v_words), v_salt,
        v_commitment, p_origin_client, p_origin_key, v_stream.head_hash, v_hash);
    IF p_notify THEN
        PERFORM pg_notify('minutebook', v_stream.id::text);
    END IF;
    RETURN concat('appended ', p_expected + 1, ' ', encode(v_hash, 'hex'), ' ',
        to_char(v_ts AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"'), ' ', v_stream.bytes + octet_length(v_words));
END
$$;
ALTER FUNCTION minutebook.append_one_v2(text, bigint, text, text, integer, jsonb, text, text, text, text, bigint, text,
    text[], text[], text, text, boolean) OWNER TO minutebook_owner;
REVOKE ALL ON FUNCTION minutebook.append_one_v2(text, bigint, text, text, integer, jsonb, text, text, text, text,
    bigint, text, text[], text[], text, text, boolean) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION minutebook.append_one_v2(text, bigint, text, text, integer, jsonb, text, text, text, text,
    bigint, text, text[], text[], text, text, boolean) TO minutebook_app;
