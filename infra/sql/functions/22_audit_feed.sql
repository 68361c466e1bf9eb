-- The optional audit feed. An append queues its ranges with its transaction id; feed_advance_v1 numbers those whose
-- transaction is older than every one still running, in (transaction id, stream, seq) order. What is numbered can never
-- be overtaken by a later commit, so no reader of `position` passes an event over (field fault B01).
CREATE OR REPLACE FUNCTION minutebook.feed_advance_v1(p_limit integer DEFAULT 10000) RETURNS bigint
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    v_head bigint;
    v_below xid8;
BEGIN
    PERFORM pg_advisory_xact_lock(7215002);
    -- The bound is read under the lock, in a statement of its own, and used by the next: a snapshot that is younger
    -- than the bound sees every transaction below it as ended.
    v_below := pg_snapshot_xmin(pg_current_snapshot());
    SELECT coalesce(max(f.position), 0) INTO v_head FROM minutebook.feed f;
    WITH taken AS (
        DELETE FROM minutebook.feed_queue q
        WHERE (q.txid, q.stream_id, q.from_seq) IN (
            SELECT w.txid, w.stream_id, w.from_seq FROM minutebook.feed_queue w
            WHERE w.txid < v_below ORDER BY w.txid, w.stream_id, w.from_seq LIMIT p_limit)
        RETURNING q.txid, q.stream_id, q.from_seq, q.to_seq
    ), numbered AS (
        SELECT t.stream_id, g.seq, row_number() OVER (ORDER BY t.txid, t.stream_id, g.seq) AS n
        FROM taken t CROSS JOIN LATERAL generate_series(t.from_seq, t.to_seq) AS g (seq)
    )
    INSERT INTO minutebook.feed (position, stream_id, seq)
    SELECT v_head + n.n, n.stream_id, n.seq FROM numbered n ORDER BY n.n;
    SELECT coalesce(max(f.position), 0) INTO v_head FROM minutebook.feed f;
    RETURN v_head;
END
$$;
ALTER FUNCTION minutebook.feed_advance_v1(integer) OWNER TO minutebook_owner;
REVOKE ALL ON FUNCTION minutebook.feed_advance_v1(integer) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION minutebook.feed_advance_v1(integer) TO minutebook_app, minutebook_auditor;

-- Switches the feed on (with everything already stored, in order of time) or off. For the owner alone: the lock on
-- `events` waits for the appends under way, which queued nothing.
CREATE OR REPLACE FUNCTION minutebook.feed_switch_v1(p_on boolean) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    PERFORM pg_advisory_xact_lock(7215002);  -- an advance under way would give the same positions
    LOCK TABLE minutebook.events IN SHARE ROW EXCLUSIVE MODE;
    IF p_on AND NOT (SELECT l.audit_feed FROM minutebook.log l) THEN
        DELETE FROM minutebook.feed_queue;
        INSERT INTO minutebook.feed (position, stream_id, seq)
        SELECT (SELECT coalesce(max(f.position), 0) FROM minutebook.feed f)
               + row_number() OVER (ORDER BY e.ts, e.stream_id, e.seq), e.stream_id, e.seq
        FROM minutebook.events e
        WHERE NOT EXISTS (SELECT FROM minutebook.feed f WHERE f.stream_id = e.stream_id AND f.seq = e.seq);
    END IF;
    UPDATE minutebook.log SET audit_feed = p_on;
END
$$;
ALTER FUNCTION minutebook.feed_switch_v1(boolean) OWNER TO minutebook_owner;
REVOKE ALL ON FUNCTION minutebook.feed_switch_v1(boolean) FROM PUBLIC;
