-- What a row must hold whatever its stream. One expression, so that the planner puts it in the place of the call.
CREATE OR REPLACE FUNCTION minutebook.is_event_whole(p_id text, p_origin text, p_origin_client text, p_origin_key text)
RETURNS boolean
LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
SELECT octet_length(p_id) = 26 AND p_id ~ '^[0-9A-HJKMNP-TV-Z]+$' AND p_origin IN ('harness', 'client', 'broker')
    AND (p_origin_client IS NULL) = (p_origin_key IS NULL)
$$;
ALTER FUNCTION minutebook.is_event_whole(text, text, text, text) OWNER TO minutebook_owner;
REVOKE ALL ON FUNCTION minutebook.is_event_whole(text, text, text, text) FROM PUBLIC;

-- After a statement that inserted events, whoever it was: checks every row against its predecessor and its own hash, moves
-- each stream's row to its new head, once per stream, and hands the ranges to the audit feed where it is on.
-- One row that is as it must be goes a short way. Every other insert, and one row that is not, is looked at by one
-- statement over all rows, which says what is wrong: a trigger for each row costs several times as much and holds no more.
-- A transaction may get its id early and a stream's lock late, so a later range of a stream can have the lower id. Taking
-- the higher of the two keeps the feed in the order of the stream; it only ever waits for more transactions, not fewer.
CREATE OR REPLACE FUNCTION minutebook.advance_streams() RETURNS trigger
LANGUAGE plpgsql AS $$
DECLARE
    v record;
    v_streams bigint := 1;
    v_moved bigint;
BEGIN
    SELECT i.*, s.name AS stream, s.version, s.sealed, s.head_hash, s.last_ts,
        (SELECT count(*) FROM inserted) AS inserted_rows, (SELECT l.audit_feed FROM minutebook.log l) AS is_fed
    INTO v
    FROM inserted i LEFT JOIN minutebook.streams s ON s.id = ANY (ARRAY[i.stream_id])  -- never by a walk: see append_v1
    LIMIT 1;
    IF v.inserted_rows = 1 AND v.seq = v.version + 1 AND NOT v.sealed
        AND v.prev_hash = v.head_hash
        AND v.bytes = octet_length(v.payload::text)
        AND octet_length(v.salt) = 16
        AND v.commitment = sha256(v.salt || convert_to(v.payload::text, 'UTF8'))
        AND v.hash = minutebook.event_hash(v.stream, v.seq, v.id, v.type, v.schema_version, v.actor_kind, v.actor_id,
            v.actor_role, v.run_id, v.caused_by, v.origin, v.ts, v.redactions, v.classes, v.origin_client,
            v.origin_key, v.commitment, v.prev_hash)
        AND v.ts BETWEEN statement_timestamp() AND clock_timestamp() AND (v.last_ts IS NULL OR v.ts >= v.last_ts)
        AND minutebook.is_event_whole(v.id, v.origin, v.origin_client, v.origin_key)
    THEN
        UPDATE minutebook.streams s
        SET version = v.seq, bytes = s.bytes + v.bytes, head_hash = v.hash, last_ts = v.ts
        WHERE s.id = v.stream_id AND s.version = v.version AND NOT s.sealed;
    ELSE
        v_streams := (SELECT count(DISTINCT i.stream_id) FROM inserted i);
        UPDATE minutebook.streams s
        SET version = n.seq, bytes = s.bytes + n.added, head_hash = n.hash, last_ts = n.ts
        FROM (
            SELECT DISTINCT ON (c.stream_id) c.stream_id, c.seq, c.hash, c.ts, c.version,
                sum(c.bytes) OVER (PARTITION BY c.stream_id) AS added,
                bool_and(c.is_late_erasure) OVER (PARTITION BY c.stream_id) AS may_be_sealed
            FROM (
                SELECT r.stream_id, r.seq, r.hash, r.ts, r.bytes, r.version, r.is_late_erasure, CASE
                    WHEN r.version IS NULL THEN 'MB001 event of a stream that does not exist'
                    WHEN r.sealed AND NOT r.is_late_erasure THEN 'MB002 the stream is sealed'
                    WHEN r.seq <> coalesce(lag(r.seq) OVER w, r.version) + 1
                        THEN 'MB003 seq does not follow the stream'
                    WHEN NOT r.is_whole
                        THEN '23514 an event has a ULID, a known origin, and the key of its origin whole or not at all'
                    WHEN (r.is_true AND r.prev_hash = coalesce(lag(r.hash) OVER w, r.head_hash)) IS NOT TRUE
                        THEN 'MB006 the hash is not that of the event at its place'
                    WHEN r.ts < coalesce(lag(r.ts) OVER w, r.last_ts)
                        THEN 'MB007 the time is before that of the event before'
                    -- Recorded now, or at the time of the event before where the clock has run back since; only what a
                    -- fork copies is older, and only that may have lost its payload.
                    WHEN r.is_erased AND NOT r.is_copied THEN 'MB006 an event enters the log with its payload'
                    WHEN NOT r.is_copied AND r.ts IS DISTINCT FROM coalesce(lag(r.ts) OVER w, r.last_ts)
                        THEN 'MB007 the time is not that of the append'
                    END AS fault
                FROM (
                    -- What needs no neighbour is looked at first, so that the window carries no payload.
                    SELECT i.stream_id, i.seq, i.hash, i.prev_hash, i.ts, i.bytes, s.version, s.sealed, s.head_hash,
                        s.last_ts, minutebook.is_event_whole(i.id, i.origin, i.origin_client, i.origin_key) AS is_whole,
                        i.payload IS NULL AS is_erased,
                        CASE WHEN s.sealed THEN minutebook.is_late_erasure(i.stream_id, i.seq, i.type, i.origin, i.payload)
                            ELSE false END AS is_late_erasure,
                        CASE WHEN i.payload IS NULL OR i.ts > clock_timestamp() OR i.ts < statement_timestamp()
                            THEN minutebook.is_copy(i.seq, i.type, i.schema_version, i.actor_kind, i.actor_id,
                                i.actor_role, i.run_id, i.caused_by, i.origin, i.ts, i.redactions, i.classes,
                                i.origin_client, i.payload, i.bytes, i.commitment) END AS is_copied,
                        (i.payload IS NULL OR i.bytes = octet_length(i.payload::text)
                            AND octet_length(i.salt) = 16
                            AND i.commitment = sha256(i.salt || convert_to(i.payload::text, 'UTF8')))
                        AND i.hash = minutebook.event_hash(s.name, i.seq, i.id, i.type, i.schema_version, i.actor_kind,
                            i.actor_id, i.actor_role, i.run_id, i.caused_by, i.origin, i.ts, i.redactions, i.classes,
                            i.origin_client, i.origin_key, i.commitment, i.prev_hash) AS is_true
                    FROM inserted i
                    LEFT JOIN minutebook.streams s ON s.id = ANY (ARRAY[i.stream_id])
                    OFFSET 0
                ) r
                WINDOW w AS (PARTITION BY r.stream_id ORDER BY r.seq)
            ) c
            WHERE c.fault IS NULL OR minutebook.refuse(c.fault)
            ORDER BY c.stream_id, c.seq DESC
        ) n
        WHERE s.id = ANY (ARRAY[n.stream_id]) AND s.version = n.version AND (NOT s.sealed OR n.may_be_sealed);
    END IF;
    -- An update that waited for somebody else's looks at the row as it is then.
    GET DIAGNOSTICS v_moved = ROW_COUNT;
    IF v_moved <> v_streams THEN
        RAISE EXCEPTION 'a stream was sealed or moved while the append waited for it' USING ERRCODE = CASE
            WHEN EXISTS (SELECT FROM inserted i JOIN minutebook.streams s ON s.id = ANY (ARRAY[i.stream_id])
                         WHERE s.sealed) THEN 'MB002' ELSE 'MB003' END;
    END IF;
    IF v.is_fed THEN
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
