-- The set-wise path of append_v1, for a batch of plain events: every stream exists, nothing has a key, a fence or a seal,
-- and the events of each stream follow each other. What is decided, checked and stored is the same, in one statement
-- instead of a loop over the events: a third of the cost.
--
-- p_streams: the distinct stream names of the batch. p_first: the version that the first event of each is decided on.
-- p_events: [{i, k, id, t, v, p, ak, ai, ar?, r?, cb?, o, rd, cl, oc?, ok?}], i the 1-based place in p_streams, k from 1
--           within the stream, those of one stream together and in order. p_count: how many they are.
-- Answers a line an event, in the order of p_events: its hash in hex, its time, its bytes and those of its stream before
-- the call, with a space between; or NULL where a stream stands elsewhere or is sealed: then nothing was appended, and
-- append_v1 has to tell who lost.
CREATE OR REPLACE FUNCTION minutebook.append_plain_v1(
    p_streams text[], p_first bigint[], p_count integer, p_events json, p_notify boolean DEFAULT true)
RETURNS text
LANGUAGE plpgsql SECURITY DEFINER
    SET search_path = pg_catalog, pg_temp
    SET plan_cache_mode = force_generic_plan
    SET enable_hashjoin = off
    SET enable_mergejoin = off
    SET enable_seqscan = off
    SET enable_bitmapscan = off
AS $$
DECLARE
    v_standing bigint;
    v_now timestamptz;
    v_seed bytea := uuid_send(gen_random_uuid()) || uuid_send(gen_random_uuid());
    v_stored text;
    v_count bigint;
    v_wake text;
BEGIN
    IF current_setting('transaction_isolation') <> 'read committed' THEN
        RAISE EXCEPTION 'append_plain_v1 runs under READ COMMITTED only' USING ERRCODE = 'MB005';
    END IF;
    SELECT count(*), string_agg(s.id::text, ',') INTO v_standing, v_wake
    FROM (
        -- "+ 0": see append_v1.
        SELECT s.id, s.name, s.version, s.sealed FROM minutebook.streams s WHERE s.name = ANY (p_streams)
        ORDER BY s.id + 0 FOR NO KEY UPDATE
    ) s
    WHERE NOT s.sealed AND s.version = p_first[array_position(p_streams, s.name)];
    IF v_standing <> cardinality(p_streams) THEN
        RETURN NULL;
    END IF;
    v_now := clock_timestamp();
    WITH stored AS (
        INSERT INTO minutebook.events AS e (stream_id, seq, id, type, schema_version, actor_kind, actor_id, actor_role,
            run_id, caused_by, origin, ts, redactions, classes, payload, bytes, salt, commitment, origin_client,
            origin_key, prev_hash, hash)
        SELECT c.stream_id, c.seq, c.id, c.t, c.v, c.ak, c.ai, c.ar, c.r, c.cb, c.o, c.ts, c.rd, c.cl, c.p, c.bytes,
            c.salt, c.commitment, c.oc, c.ok, substr(c.link, 1, 32), substr(c.link, 33)
        FROM (
            -- The rows come as p_events has them: a function's rows, each with its stream beside it. Were they to come
            -- otherwise, the check of the chain would refuse them.
            SELECT b.*, minutebook.event_chain(
                minutebook.event_words(b.name, b.seq, b.id, b.t, b.v, b.ak, b.ai, b.ar, b.r, b.cb, b.o, b.ts, b.rd, b.cl,
                    b.oc, b.ok, b.commitment), b.head_hash, b.k) OVER (ROWS UNBOUNDED PRECEDING) AS link
            FROM (
                SELECT a.stream_id, a.name, a.seq, a.head_hash, a.k, a.id, a.t, a.v, a.ak, a.ai, a.ar, a.r, a.cb, a.o,
                    a.ts, a.rd, a.cl, a.p, a.oc, a.ok, a.salt, octet_length(a.words) AS bytes,
                    sha256(a.salt || convert_to(a.words, 'UTF8')) AS commitment
                FROM (
                    SELECT g.*, s.id AS stream_id, s.name, s.version + g.k AS seq, s.head_hash, greatest(v_now, s.last_ts) AS ts,
                        CASE WHEN g.p IS NOT NULL OR minutebook.refuse('MB004 an event enters the log with its payload')
                            THEN g.p::text END AS words,
                        -- One draw of randomness serves the call: each salt is as unknown as the seed.
                        substr(sha256(v_seed || int4send(g.i) || int4send(g.k)), 1, 16) AS salt
                    FROM json_to_recordset(p_events) AS g (i integer, k integer, id text, t text, v integer, p jsonb,
                        ak text, ai text, ar text, r text, cb bigint, o text, rd text[], cl text[], oc text, ok text)
                    JOIN minutebook.streams s ON s.name = ANY (ARRAY[p_streams[g.i]])
                    OFFSET 0
                ) a
                OFFSET 0
            ) b
        ) c
        RETURNING e.stream_id, e.hash, e.ts, e.bytes
    )
    SELECT string_agg(concat(encode(r.hash, 'hex'), ' ', to_char(r.ts AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"'),
        ' ', r.bytes, ' ', s.bytes), E'\n'), count(*)
    INTO v_stored, v_count
    FROM stored r JOIN minutebook.streams s ON s.id = ANY (ARRAY[r.stream_id]);
    IF v_count <> p_count THEN
        RAISE EXCEPTION 'the streams have other events than were counted' USING ERRCODE = 'MB003';
    END IF;
    IF p_notify THEN
        PERFORM pg_notify('minutebook', CASE WHEN octet_length(v_wake) > 7900 THEN '*' ELSE v_wake END);
    END IF;
    RETURN v_stored;
END
$$;
ALTER FUNCTION minutebook.append_plain_v1(text[], bigint[], integer, json, boolean) OWNER TO minutebook_owner;
REVOKE ALL ON FUNCTION minutebook.append_plain_v1(text[], bigint[], integer, json, boolean) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION minutebook.append_plain_v1(text[], bigint[], integer, json, boolean) TO minutebook_app;
