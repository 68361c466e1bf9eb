-- Replies on their way, for viewers of other processes.
--
-- deltas_put_v1 takes one batch of a process: [{s, t, a, o, x, e}], stream id, turn, attempt, code points before it, text,
-- and the epoch of the writer's lease. Only rows whose epoch is the newest of the runner's lease of their stream, which is
-- not sealed, are stored: those of a displaced runner reach nobody. No lease is locked, since appends lock it in another
-- order: a runner that is displaced in this very moment wrote before that, and its attempt is older than the next one's.
-- A longer text from the same place replaces the shorter one; a row without text at the start of an attempt takes the
-- rows of earlier attempts along. One wake-up for all, on a channel of its own. Answers the
-- rows that were stored.
CREATE OR REPLACE FUNCTION minutebook.deltas_put_v1(p_rows json) RETURNS integer
LANGUAGE plpgsql SECURITY DEFINER
    SET search_path = pg_catalog, pg_temp
    SET enable_hashjoin = off
    SET enable_mergejoin = off
    SET enable_seqscan = off
AS $$
DECLARE
    v_stored integer;
    v_wake text;
BEGIN
    WITH mine AS MATERIALIZED (
        SELECT r.s, r.t, r.a, r.o, r.x
        FROM json_to_recordset(p_rows) AS r (s bigint, t bigint, a integer, o bigint, x text, e bigint)
        JOIN minutebook.leases l ON l.stream_id = r.s AND l.purpose = 'runner' AND l.epoch = r.e
        JOIN minutebook.streams s ON s.id = ANY (ARRAY[r.s]) AND NOT s.sealed
    ), outdone AS (
        DELETE FROM minutebook.deltas d USING mine m
        WHERE m.o = 0 AND m.x = '' AND d.stream_id = m.s AND d.turn = m.t AND d.attempt < m.a
    ), stored AS (
        INSERT INTO minutebook.deltas AS d (stream_id, turn, attempt, start, text)
        SELECT DISTINCT ON (m.s, m.t, m.a, m.o) m.s, m.t, m.a, m.o, m.x FROM mine m
        ORDER BY m.s, m.t, m.a, m.o, char_length(m.x) DESC
        ON CONFLICT ON CONSTRAINT deltas_pkey DO UPDATE SET text = EXCLUDED.text
            WHERE char_length(d.text) < char_length(EXCLUDED.text)
        RETURNING d.stream_id
    )
    SELECT count(*), (SELECT string_agg(i.id::text, ',') FROM (SELECT DISTINCT n.stream_id AS id FROM stored n) i)
    INTO v_stored, v_wake FROM stored;
    IF v_stored > 0 THEN
        PERFORM pg_notify('minutebook_deltas', CASE WHEN octet_length(v_wake) > 7900 THEN '*' ELSE v_wake END);
    END IF;
    RETURN v_stored;
END
$$;
ALTER FUNCTION minutebook.deltas_put_v1(json) OWNER TO minutebook_owner;
REVOKE ALL ON FUNCTION minutebook.deltas_put_v1(json) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION minutebook.deltas_put_v1(json) TO minutebook_app;

-- A turn's reply is recorded: what there was of it, and of every turn before, goes.
CREATE OR REPLACE FUNCTION minutebook.deltas_drop_v1(p_stream_id bigint, p_turn bigint) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    DELETE FROM minutebook.deltas d WHERE d.stream_id = p_stream_id AND d.turn <= p_turn;
END
$$;
ALTER FUNCTION minutebook.deltas_drop_v1(bigint, bigint) OWNER TO minutebook_owner;
REVOKE ALL ON FUNCTION minutebook.deltas_drop_v1(bigint, bigint) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION minutebook.deltas_drop_v1(bigint, bigint) TO minutebook_app;

-- What is older than 15 minutes goes, whatever became of its turn. Answers how many rows.
CREATE OR REPLACE FUNCTION minutebook.deltas_expire_v1() RETURNS bigint
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    v_gone bigint;
BEGIN
    DELETE FROM minutebook.deltas d WHERE d.put_at <= clock_timestamp() - interval '15 minutes';
    GET DIAGNOSTICS v_gone = ROW_COUNT;
    RETURN v_gone;
END
$$;
ALTER FUNCTION minutebook.deltas_expire_v1() OWNER TO minutebook_owner;
REVOKE ALL ON FUNCTION minutebook.deltas_expire_v1() FROM PUBLIC;
GRANT EXECUTE ON FUNCTION minutebook.deltas_expire_v1() TO minutebook_app;
