-- One entry of an agent's memory, for the runner whose epoch is the newest of the conversation's runner lease, which is
-- not sealed. An empty text removes it. A scope has at most 256 entries: writers of one scope come one after the other.
-- No lease is locked, as in deltas_put_v1. The same again is the same: `written` and `removed` are what is so now.
-- Answers written, removed, full, or fenced where another runner has the conversation.
CREATE OR REPLACE FUNCTION minutebook.memory_write_v1(
    p_stream_id bigint, p_epoch bigint, p_tenant text, p_scope text, p_key text, p_text text, p_writer text,
    p_classes text[])
RETURNS text
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    PERFORM pg_advisory_xact_lock(7215006, hashtext(p_tenant || ' ' || p_scope));
    PERFORM FROM minutebook.leases l JOIN minutebook.streams s ON s.id = l.stream_id
    WHERE l.stream_id = p_stream_id AND l.purpose = 'runner' AND l.epoch = p_epoch AND NOT s.sealed;
    IF NOT FOUND THEN
        RETURN 'fenced';
    END IF;
    IF p_text = '' THEN
        DELETE FROM minutebook.memories m WHERE m.scope = p_scope AND m.tenant = p_tenant AND m.key = p_key;
        RETURN 'removed';
    END IF;
    INSERT INTO minutebook.memories AS m (tenant, scope, key, text, writer, classes, stream_id)
    SELECT p_tenant, p_scope, p_key, p_text, p_writer, p_classes, p_stream_id
    WHERE (SELECT count(*) FROM minutebook.memories o
           WHERE o.scope = p_scope AND o.tenant = p_tenant AND o.key <> p_key) < 256
    ON CONFLICT ON CONSTRAINT memories_pkey DO UPDATE SET text = EXCLUDED.text, writer = EXCLUDED.writer,
        classes = EXCLUDED.classes, stream_id = EXCLUDED.stream_id, updated_at = clock_timestamp();
    RETURN CASE WHEN FOUND THEN 'written' ELSE 'full' END;
END
$$;
ALTER FUNCTION minutebook.memory_write_v1(bigint, bigint, text, text, text, text, text, text[]) OWNER TO minutebook_owner;
REVOKE ALL ON FUNCTION minutebook.memory_write_v1(bigint, bigint, text, text, text, text, text, text[]) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION minutebook.memory_write_v1(bigint, bigint, text, text, text, text, text, text[]) TO minutebook_app;

-- What nobody has written for 365 days goes. Answers how many entries.
CREATE OR REPLACE FUNCTION minutebook.memories_expire_v1() RETURNS bigint
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    v_gone bigint;
BEGIN
    DELETE FROM minutebook.memories m WHERE m.updated_at <= clock_timestamp() - interval '365 days';
    GET DIAGNOSTICS v_gone = ROW_COUNT;
    RETURN v_gone;
END
$$;
ALTER FUNCTION minutebook.memories_expire_v1() OWNER TO minutebook_owner;
REVOKE ALL ON FUNCTION minutebook.memories_expire_v1() FROM PUBLIC;
GRANT EXECUTE ON FUNCTION minutebook.memories_expire_v1() TO minutebook_app;
