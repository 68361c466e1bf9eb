-- Sets or releases the legal hold of a sealed stream, to which nothing is appended any more: the table `holds` has who did
-- it and why. A stream that is open takes an event for it instead (30_note_run_or_hold.sql).
--
-- p_key: {tenant, caller, operation, scope, key, fingerprint, status, body}, or null.
-- Outcomes: done (releasing what nobody holds changes nothing); duplicate (with the stored status and body), key_reused;
-- open (no such sealed stream). `seq` and `chain` are the stream's head.
CREATE OR REPLACE FUNCTION minutebook.hold_closed_v1(
    p_stream text, p_is_set boolean, p_id text, p_actor_kind text, p_actor_id text, p_reason text, p_key json)
RETURNS TABLE (outcome text, seq bigint, chain text, status integer, body text)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_variable
DECLARE
    k record;
    v_found record;
    v_stream record;
    v_body text;
BEGIN
    SELECT s.id, s.sealed, s.held, s.version, encode(s.head_hash, 'hex') AS chain INTO v_stream
    FROM minutebook.streams s WHERE s.name = p_stream FOR NO KEY UPDATE;
    IF v_stream.sealed IS NOT TRUE THEN
        RETURN QUERY SELECT 'open', 0::bigint, NULL::text, NULL::integer, NULL::text;
        RETURN;
    END IF;
    SELECT * INTO k FROM json_to_record(p_key) AS r (tenant text, caller text, operation text, scope text, key text,
        fingerprint text, status integer, body jsonb);
    IF k.key IS NOT NULL THEN
        v_body := (jsonb_build_object('seq', v_stream.version, 'chain', v_stream.chain) || k.body)::text;
        INSERT INTO minutebook.idempotency (tenant, caller, operation, scope, key, fingerprint, status, body, stream_id)
        VALUES (k.tenant, k.caller, k.operation, k.scope, k.key, decode(k.fingerprint, 'hex'), k.status, v_body,
            v_stream.id)
        ON CONFLICT DO NOTHING;
        IF NOT FOUND THEN
            SELECT i.fingerprint, i.status, i.body INTO STRICT v_found FROM minutebook.idempotency i
            WHERE i.tenant = k.tenant AND i.caller = k.caller AND i.operation = k.operation AND i.scope = k.scope
              AND i.key = k.key;
            IF v_found.fingerprint = decode(k.fingerprint, 'hex') THEN
                RETURN QUERY SELECT 'duplicate', v_stream.version, v_stream.chain, v_found.status, v_found.body;
            ELSE
                RETURN QUERY SELECT 'key_reused', v_stream.version, v_stream.chain, NULL::integer, NULL::text;
            END IF;
            RETURN;
        END IF;
    END IF;
    IF p_is_set OR v_stream.held THEN
        INSERT INTO minutebook.holds (stream_id, id, is_set, actor_kind, actor_id, reason)
        VALUES (v_stream.id, p_id, p_is_set, p_actor_kind, p_actor_id, p_reason);
        UPDATE minutebook.streams s SET held = p_is_set WHERE s.id = v_stream.id;
    END IF;
    RETURN QUERY SELECT 'done', v_stream.version, v_stream.chain, k.status, v_body;
END
$$;
ALTER FUNCTION minutebook.hold_closed_v1(text, boolean, text, text, text, text, json) OWNER TO minutebook_owner;
REVOKE ALL ON FUNCTION minutebook.hold_closed_v1(text, boolean, text, text, text, text, json) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION minutebook.hold_closed_v1(text, boolean, text, text, text, text, json) TO minutebook_app;
