-- After a statement that inserted events, whoever it was: checks every row against its predecessor and its own hash, moves
-- each stream's row to its new head, once per stream, and hands the ranges to the audit feed where it is on.
-- One statement over all rows: a trigger for each row costs several times as much and holds no more.
-- A transaction may get its id early and a stream's lock late, so a later range of a stream can have the lower id. Taking
-- the higher of the two keeps the feed in the order of the stream; it only ever waits for more transactions, not fewer.
CREATE OR REPLACE FUNCTION minutebook.advance_streams() RETURNS trigger
LANGUAGE plpgsql AS $$
BEGIN
    UPDATE minutebook.streams s
    SET version = n.seq, bytes = s.bytes + n.added, head_hash = n.hash, last_ts = n.ts
    FROM (
        SELECT DISTINCT ON (c.stream_id) c.stream_id, c.seq, c.hash, c.ts,
            sum(c.bytes) OVER (PARTITION BY c.stream_id) AS added
        FROM (
            SELECT i.stream_id, i.seq, i.hash, i.ts, i.bytes, CASE
                WHEN s.id IS NULL THEN 'MB001 event of a stream that does not exist'
                WHEN s.sealed THEN 'MB002 the stream is sealed'
                WHEN i.seq <> coalesce(lag(i.seq) OVER w, s.version) + 1 THEN 'MB003 seq does not follow the stream'
                WHEN (i.prev_hash = coalesce(lag(i.hash) OVER w, s.head_hash)
                    AND (i.payload IS NULL OR i.bytes = octet_length(i.payload::text)
                        AND octet_length(i.salt) = 16
                        AND i.commitment = sha256(i.salt || convert_to(i.payload::text, 'UTF8')))
                    AND i.hash = minutebook.event_hash(s.name, i.seq, i.id, i.type, i.schema_version, i.actor_kind,
                        i.actor_id, i.actor_role, i.run_id, i.caused_by, i.origin, i.ts, i.redactions, i.classes,
                        i.origin_client, i.origin_key, i.commitment, i.prev_hash)) IS NOT TRUE
                    THEN 'MB006 the hash is not that of the event at its place'
                WHEN i.ts < coalesce(lag(i.ts) OVER w, s.last_ts)
                    THEN 'MB007 the time is before that of the event before'
                -- Recorded now, or at the time of the event before where the clock has run back since; only what a fork
                -- copies is older, and only that may have lost its payload.
                WHEN (i.payload IS NULL
                    OR (i.ts > clock_timestamp() OR i.ts < statement_timestamp())
                    AND i.ts IS DISTINCT FROM coalesce(lag(i.ts) OVER w, s.last_ts))
                    AND NOT minutebook.is_copy(i.seq, i.type, i.schema_version, i.actor_kind, i.actor_id, i.actor_role,
                        i.run_id, i.caused_by, i.origin, i.ts, i.redactions, i.classes, i.origin_client, i.payload,
                        i.bytes, i.commitment)
                    THEN CASE WHEN i.payload IS NULL THEN 'MB006 an event enters the log with its payload'
                        ELSE 'MB007 the time is not that of the append' END
                END AS fault
            FROM inserted i
            LEFT JOIN minutebook.streams s ON s.id = ANY (ARRAY[i.stream_id])  -- never by a walk: see append_v1
            WINDOW w AS (PARTITION BY i.stream_id ORDER BY i.seq)
        ) c
        WHERE c.fault IS NULL OR minutebook.refuse(c.fault)
        ORDER BY c.stream_id, c.seq DESC
    ) n
    WHERE s.id = ANY (ARRAY[n.stream_id]);
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
