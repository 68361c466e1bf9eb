-- After a statement that inserted events: moves each stream's row to its new head, once per stream, and hands the
-- ranges to the audit feed where it is on. A direct insert by the owner keeps the two in step as well.
-- A transaction may get its id early and a stream's lock late, so a later range of a stream can have the lower id. Taking
-- the higher of the two keeps the feed in the order of the stream; it only ever waits for more transactions, not fewer.
CREATE OR REPLACE FUNCTION minutebook.advance_streams() RETURNS trigger
LANGUAGE plpgsql AS $$
BEGIN
    UPDATE minutebook.streams s
    SET version = n.seq, bytes = s.bytes + n.added, head_hash = n.hash, last_ts = n.ts
    FROM (SELECT DISTINCT ON (i.stream_id) i.stream_id, i.seq, i.hash, i.ts,
              sum(i.bytes) OVER (PARTITION BY i.stream_id) AS added
          FROM inserted i ORDER BY i.stream_id, i.seq DESC) n
    WHERE s.id = ANY (ARRAY[n.stream_id]);  -- never by a walk: see append_v1
    IF (SELECT l.audit_feed FROM minutebook.log l) THEN
        INSERT INTO minutebook.feed_queue (txid, stream_id, from_seq, to_seq)
        SELECT greatest(pg_current_xact_id(),
                   (SELECT max(q.txid) FROM minutebook.feed_queue q WHERE q.stream_id = n.stream_id)),
            n.stream_id, n.from_seq, n.to_seq
        FROM (SELECT i.stream_id, min(i.seq) AS from_seq, max(i.seq) AS to_seq
              FROM inserted i GROUP BY i.stream_id) n;
    END IF;
    RETURN NULL;
END
$$;
ALTER FUNCTION minutebook.advance_streams() OWNER TO minutebook_owner;
REVOKE ALL ON FUNCTION minutebook.advance_streams() FROM PUBLIC;

CREATE OR REPLACE TRIGGER events_advance AFTER INSERT ON minutebook.events
    REFERENCING NEW TABLE AS inserted FOR EACH STATEMENT EXECUTE FUNCTION minutebook.advance_streams();
ALTER TABLE minutebook.events ENABLE ALWAYS TRIGGER events_advance;
