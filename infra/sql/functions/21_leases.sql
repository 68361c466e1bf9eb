-- Leases: taken, renewed and dropped under the stream's row lock, by the database's clock alone.
-- lease_take_v1 answers the new epoch, or 0 where another holder's lease is younger than p_ttl_s seconds.
CREATE OR REPLACE FUNCTION minutebook.lease_take_v1(p_stream text, p_purpose text, p_holder text, p_ttl_s integer)
RETURNS TABLE (epoch bigint, holder text)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_column
DECLARE
    v_stream_id bigint;
BEGIN
    SELECT s.id INTO v_stream_id FROM minutebook.streams s WHERE s.name = p_stream FOR NO KEY UPDATE;
    IF NOT FOUND THEN
        RAISE EXCEPTION 'lease of a stream that does not exist' USING ERRCODE = 'MB001';
    END IF;
    RETURN QUERY
    INSERT INTO minutebook.leases AS l (stream_id, purpose, holder, epoch, seen_at)
    VALUES (v_stream_id, p_purpose, p_holder, 1, clock_timestamp())
    ON CONFLICT ON CONSTRAINT leases_pkey DO UPDATE
        SET holder = EXCLUDED.holder, epoch = l.epoch + 1, seen_at = EXCLUDED.seen_at
        WHERE l.holder = EXCLUDED.holder OR l.seen_at + make_interval(secs => p_ttl_s) <= clock_timestamp()
    RETURNING l.epoch, l.holder;
    IF NOT FOUND THEN
        RETURN QUERY SELECT 0::bigint, l.holder FROM minutebook.leases l
            WHERE l.stream_id = v_stream_id AND l.purpose = p_purpose;
    END IF;
END
$$;
ALTER FUNCTION minutebook.lease_take_v1(text, text, text, integer) OWNER TO minutebook_owner;
REVOKE ALL ON FUNCTION minutebook.lease_take_v1(text, text, text, integer) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION minutebook.lease_take_v1(text, text, text, integer) TO minutebook_app;

-- Lets the lease lapse at once, so that the next holder need not wait; the epoch stays, so the old holder stays fenced.
CREATE OR REPLACE FUNCTION minutebook.lease_drop_v1(p_stream text, p_purpose text, p_holder text, p_epoch bigint)
RETURNS boolean
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    PERFORM FROM minutebook.streams s WHERE s.name = p_stream FOR NO KEY UPDATE;
    UPDATE minutebook.leases l SET seen_at = '-infinity', epoch = l.epoch + 1
    FROM minutebook.streams s
    WHERE s.name = p_stream AND l.stream_id = s.id AND l.purpose = p_purpose
      AND l.holder = p_holder AND l.epoch = p_epoch;
    RETURN FOUND;
END
$$;
ALTER FUNCTION minutebook.lease_drop_v1(text, text, text, bigint) OWNER TO minutebook_owner;
REVOKE ALL ON FUNCTION minutebook.lease_drop_v1(text, text, text, bigint) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION minutebook.lease_drop_v1(text, text, text, bigint) TO minutebook_app;
