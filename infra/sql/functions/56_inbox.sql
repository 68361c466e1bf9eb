-- The row of a recipient's inbox, made where there is none.
CREATE OR REPLACE FUNCTION minutebook.inbox_open_v1(p_tenant text, p_recipient text)
RETURNS TABLE (id bigint, last bigint)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_column
BEGIN
    INSERT INTO minutebook.inbox_heads AS h (tenant, recipient, last)
    VALUES (p_tenant, p_recipient, (extract(epoch FROM clock_timestamp()) * 1000)::bigint)
    ON CONFLICT ON CONSTRAINT inbox_heads_recipient DO NOTHING;
    RETURN QUERY SELECT h.id, h.last FROM minutebook.inbox_heads h
    WHERE h.tenant = p_tenant AND h.recipient = p_recipient;
END
$$;
ALTER FUNCTION minutebook.inbox_open_v1(text, text) OWNER TO minutebook_owner;
REVOKE ALL ON FUNCTION minutebook.inbox_open_v1(text, text) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION minutebook.inbox_open_v1(text, text) TO minutebook_app;

-- Stores one part of a delivery and wakes who follows. The lock on the recipient's row is held to the commit, so that places
-- become visible in their order; that on the delivery's keeps a cancellation before or behind all of it, and that on the
-- conversation's, which is taken first as whoever appends takes it, an erasure.
--
-- Outcomes: stored; there (the key is known); withdrawn (the delivery was cancelled or purged, or its words were erased);
-- unknown (no such delivery).
CREATE OR REPLACE FUNCTION minutebook.inbox_put_v1(
    p_tenant text, p_channel text, p_recipient text, p_delivery_id text, p_part integer, p_codec text, p_version integer,
    p_body bytea, p_wrapped bytea, p_ttl_s integer)
RETURNS text
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    v_key text := p_delivery_id || '.' || p_part;
    v_stream bigint;
    v_conversation text;
    v_talk bigint;
    v_turn bigint;
    v_head bigint;
    v_cursor bigint;
BEGIN
    SELECT d.conversation_id INTO v_conversation FROM minutebook.deliveries d
    WHERE d.id = p_delivery_id AND d.tenant = p_tenant AND d.channel = p_channel;
    SELECT s.id INTO v_talk FROM minutebook.streams s WHERE s.name = 'conversation:' || v_conversation FOR SHARE;
    SELECT d.stream_id INTO v_stream FROM minutebook.deliveries d
    WHERE d.id = p_delivery_id AND d.tenant = p_tenant AND d.channel = p_channel FOR SHARE;
    SELECT (e.payload ->> 'turn')::bigint INTO v_turn FROM minutebook.events e WHERE e.stream_id = v_stream AND e.seq = 1;
    IF v_stream IS NULL THEN
        RETURN 'unknown';
    ELSIF EXISTS (SELECT FROM minutebook.events n LEFT JOIN minutebook.events e
            ON e.stream_id = n.stream_id AND e.seq = (n.payload ->> 'erasedSeq')::bigint
        WHERE n.origin_client = 'erased' AND n.stream_id = v_talk
          AND coalesce(e.payload ->> 'turn', n.payload -> 'left' ->> 'turn')::bigint = v_turn)
    THEN
        RETURN 'withdrawn';
    ELSIF EXISTS (SELECT FROM minutebook.events e
        WHERE e.stream_id = v_stream AND e.type IN ('delivery_cancelled', 'delivery_purged'))
    THEN
        RETURN 'withdrawn';
    ELSIF EXISTS (SELECT FROM minutebook.inbox_items i WHERE i.key = v_key) THEN
        RETURN 'there';
    END IF;
    PERFORM minutebook.inbox_open_v1(p_tenant, p_recipient);
    UPDATE minutebook.inbox_heads h SET last = h.last + 1, used_at = clock_timestamp()
    WHERE h.tenant = p_tenant AND h.recipient = p_recipient RETURNING h.id, h.last INTO v_head, v_cursor;
    INSERT INTO minutebook.inbox_items (key, tenant, head, cursor, channel, delivery_id, part, stream_id, conversation_id,
        turn, codec, codec_version, body, wrapped, expires_at)
    VALUES (v_key, p_tenant, v_head, v_cursor, p_channel, p_delivery_id, p_part, v_talk, v_conversation, v_turn, p_codec,
        p_version, p_body, p_wrapped, clock_timestamp() + make_interval(secs => p_ttl_s))
    ON CONFLICT ON CONSTRAINT inbox_items_pkey DO NOTHING;
    IF NOT FOUND THEN
        RETURN 'there';
    END IF;
    PERFORM pg_notify('minutebook_inbox', v_head::text);
    RETURN 'stored';
END
$$;
ALTER FUNCTION minutebook.inbox_put_v1(text, text, text, text, integer, text, integer, bytea, bytea, integer)
    OWNER TO minutebook_owner;
REVOKE ALL ON FUNCTION minutebook.inbox_put_v1(text, text, text, text, integer, text, integer, bytea, bytea, integer)
    FROM PUBLIC;
GRANT EXECUTE ON FUNCTION minutebook.inbox_put_v1(text, text, text, text, integer, text, integer, bytea, bytea, integer)
    TO minutebook_app;

-- Takes the words of deliveries out of inboxes, as 57_note_inbox.sql does where the log says so: of those whose stream is
-- sealed it says nothing any more. Answers how many parts there were.
CREATE OR REPLACE FUNCTION minutebook.inbox_purge_v1(p_ids text[]) RETURNS bigint
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    v_item record;
    v_last bigint;
    v_gone bigint := 0;
BEGIN
    FOR v_item IN
        SELECT i.key, i.head FROM minutebook.inbox_items i
        WHERE i.delivery_id = ANY (p_ids) AND i.revoked_at IS NULL ORDER BY i.head, i.cursor
    LOOP
        UPDATE minutebook.inbox_heads h SET last = h.last + 1 WHERE h.id = v_item.head RETURNING h.last INTO v_last;
        UPDATE minutebook.inbox_items i SET cursor = v_last, body = NULL, wrapped = NULL, revoked_at = clock_timestamp()
        WHERE i.key = v_item.key AND i.revoked_at IS NULL;
        v_gone := v_gone + 1;
        PERFORM pg_notify('minutebook_inbox', v_item.head::text);
    END LOOP;
    RETURN v_gone;
END
$$;
ALTER FUNCTION minutebook.inbox_purge_v1(text[]) OWNER TO minutebook_owner;
REVOKE ALL ON FUNCTION minutebook.inbox_purge_v1(text[]) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION minutebook.inbox_purge_v1(text[]) TO minutebook_app;

-- At most p_limit items whose time is over go, then the rows of recipients who have none and got none for p_idle_s. Answers
-- how many items went.
CREATE OR REPLACE FUNCTION minutebook.inbox_expire_v1(p_limit integer, p_idle_s integer) RETURNS bigint
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    v_gone bigint;
BEGIN
    DELETE FROM minutebook.inbox_items i WHERE i.key IN (
        SELECT o.key FROM minutebook.inbox_items o WHERE o.expires_at <= clock_timestamp() ORDER BY o.expires_at LIMIT p_limit);
    GET DIAGNOSTICS v_gone = ROW_COUNT;
    DELETE FROM minutebook.inbox_heads h WHERE h.id IN (
        SELECT o.id FROM minutebook.inbox_heads o
        WHERE o.used_at <= clock_timestamp() - make_interval(secs => p_idle_s)
          AND NOT EXISTS (SELECT FROM minutebook.inbox_items i WHERE i.head = o.id)
        ORDER BY o.used_at LIMIT p_limit FOR UPDATE SKIP LOCKED);
    RETURN v_gone;
END
$$;
ALTER FUNCTION minutebook.inbox_expire_v1(integer, integer) OWNER TO minutebook_owner;
REVOKE ALL ON FUNCTION minutebook.inbox_expire_v1(integer, integer) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION minutebook.inbox_expire_v1(integer, integer) TO minutebook_app;
