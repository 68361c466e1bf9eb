-- Nothing of the conversation up to that seq waits for a runner. An envelope that came later keeps the entry, also one
-- whose transaction is still open: it waits for this one, or this one sees its seq. Answers whether the entry went.
CREATE OR REPLACE FUNCTION minutebook.turn_work_done_v1(p_stream_id bigint, p_through_seq bigint) RETURNS boolean
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    DELETE FROM minutebook.turn_work w WHERE w.stream_id = p_stream_id AND w.seq <= p_through_seq;
    RETURN FOUND;
END
$$;
ALTER FUNCTION minutebook.turn_work_done_v1(bigint, bigint) OWNER TO minutebook_owner;
REVOKE ALL ON FUNCTION minutebook.turn_work_done_v1(bigint, bigint) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION minutebook.turn_work_done_v1(bigint, bigint) TO minutebook_app;

-- Notes how much of a turn's reply its asker has received; it only ever grows. Of a stream that is gone, nothing.
CREATE OR REPLACE FUNCTION minutebook.turn_seen_v1(p_stream_id bigint, p_turn bigint, p_seen bigint) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    INSERT INTO minutebook.turn_seen AS t (stream_id, turn, seen)
    SELECT s.id, p_turn, p_seen FROM minutebook.streams s WHERE s.id = p_stream_id AND s.kind = 'conversation'
    ON CONFLICT ON CONSTRAINT turn_seen_pkey DO UPDATE SET seen = EXCLUDED.seen WHERE t.seen < EXCLUDED.seen;
END
$$;
ALTER FUNCTION minutebook.turn_seen_v1(bigint, bigint, bigint) OWNER TO minutebook_owner;
REVOKE ALL ON FUNCTION minutebook.turn_seen_v1(bigint, bigint, bigint) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION minutebook.turn_seen_v1(bigint, bigint, bigint) TO minutebook_app;
