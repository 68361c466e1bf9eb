-- Whether a row is what the stream that is being forked has at the same place: all of it but id, salt, commitment and
-- chain, and that its writer's own numbering is gone. Such a row alone may enter the log with a time that is past, or with
-- a payload that is erased (11_advance_streams.sql). The source is named by fork_v1 for the time of its call; whoever
-- names another one gains nothing, since what is compared is the stored event.
CREATE OR REPLACE FUNCTION minutebook.is_copy(
    p_seq bigint, p_type text, p_schema_version integer, p_actor_kind text, p_actor_id text, p_actor_role text,
    p_run_id text, p_caused_by bigint, p_origin text, p_ts timestamptz, p_redactions text[], p_classes text[],
    p_origin_client text, p_payload jsonb, p_bytes integer, p_commitment bytea)
RETURNS boolean
LANGUAGE plpgsql STABLE AS $$
DECLARE
    v_source bigint := nullif(current_setting('minutebook.fork_source', true), '')::bigint;
BEGIN
    RETURN p_origin_client IS NULL AND EXISTS (
        SELECT FROM minutebook.events e
        WHERE e.stream_id = v_source AND e.seq = p_seq AND e.type = p_type AND e.schema_version = p_schema_version
          AND e.actor_kind = p_actor_kind AND e.actor_id = p_actor_id
          AND e.actor_role IS NOT DISTINCT FROM p_actor_role AND e.run_id IS NOT DISTINCT FROM p_run_id
          AND e.caused_by IS NOT DISTINCT FROM p_caused_by AND e.origin = p_origin AND e.ts = p_ts
          AND e.redactions = p_redactions AND e.classes = p_classes AND e.bytes = p_bytes
          AND e.payload::text IS NOT DISTINCT FROM p_payload::text
          AND (e.payload IS NOT NULL OR e.commitment = p_commitment));
END
$$;
ALTER FUNCTION minutebook.is_copy(bigint, text, integer, text, text, text, text, bigint, text, timestamptz, text[],
    text[], text, jsonb, integer, bytea) OWNER TO minutebook_owner;
REVOKE ALL ON FUNCTION minutebook.is_copy(bigint, text, integer, text, text, text, text, bigint, text, timestamptz,
    text[], text[], text, jsonb, integer, bytea) FROM PUBLIC;

-- A new stream with events 1 to p_seq of another one, and behind them one event of its own, in one transaction. The copies
-- keep seq, run, actor, type, cause, origin, time, redactions, classes and payload; id, salt and chain are new, and the
-- writers' own numbering is left out, so that nothing in the fork is taken for a repetition. Kind, tenant and retention
-- are the source's; no hold, lease or seal is.
--
-- p_event: {id, t, v, p, ak, ai, ar?, o, rd, cl}; the source's chain hash at p_seq is put into its payload as `chain`.
-- p_key:   {tenant, caller, operation, scope, key, fingerprint, status, body}, or null; `forkedFrom.chain` of the stored
--          body is filled in likewise.
-- p_max_events, p_max_bytes: limits that the fork must stay below.
-- Outcomes: appended; duplicate (with the stored status and body), key_reused; not_found (no such stream or event: it may
-- have been purged a moment ago), too_long, conflict (p_stream exists). The columns are those of append_v1, and the chain
-- hash of the source.
--
-- A payload that is erased in the source is erased in the copy: the commitment is carried over, and where none of the
-- copied events names it, an erasure event behind p_event does, so that the fork verifies by itself.
--
-- The source's row is locked against deletion alone: appends to it go on meanwhile, a purge waits, and the copies do not
-- need it afterwards. Events are taken 256 at a time, at most 16 MiB of payload, so memory is bounded whatever p_seq is;
-- time grows with it, about 10 s for 100,000 small events or for 256 MiB.
CREATE OR REPLACE FUNCTION minutebook.fork_v1(
    p_source text, p_seq bigint, p_stream text, p_event json, p_max_events bigint, p_max_bytes bigint,
    p_key json DEFAULT NULL, p_notify boolean DEFAULT true)
RETURNS TABLE (outcome text, seq bigint, event_id text, chain text, ts text, bytes bigint, status integer, body text,
               source_chain text)
LANGUAGE plpgsql SECURITY DEFINER
    SET search_path = pg_catalog, pg_temp
    SET plan_cache_mode = force_generic_plan
    SET enable_hashjoin = off
    SET enable_mergejoin = off
    SET enable_seqscan = off
    SET enable_bitmapscan = off
AS $$
#variable_conflict use_variable
DECLARE
    it record;
    k record;
    v_found record;
    v_source record;
    v_stream_id bigint;
    v_outcome text := 'appended';
    v_source_hash bytea;
    v_erased bigint[];
    v_status integer;
    v_body text;
    v_size bigint;
    v_seed bytea := uuid_send(gen_random_uuid()) || uuid_send(gen_random_uuid());
    v_ms bigint := floor(extract(epoch FROM clock_timestamp()) * 1000);
    v_clock text := '';
    v_at bigint := 0;
    v_prev bytea := '\x0000000000000000000000000000000000000000000000000000000000000000';
    v_random bytea;
    v_salt bytea;
    v_seqs bigint[];
    v_event_ids text[];
    v_salts bytea[];
    v_commitments bytea[];
    v_prevs bytea[];
    v_hashes bytea[];
    v_n integer;
BEGIN
    IF current_setting('transaction_isolation') <> 'read committed' THEN
        RAISE EXCEPTION 'fork_v1 runs under READ COMMITTED only' USING ERRCODE = 'MB005';
    END IF;
    SELECT * INTO k FROM json_to_record(p_key) AS r (tenant text, caller text, operation text, scope text, key text,
        fingerprint text, status integer, body jsonb);
    IF k.key IS NOT NULL THEN
        INSERT INTO minutebook.idempotency (tenant, caller, operation, scope, key, fingerprint, status, body)
        VALUES (k.tenant, k.caller, k.operation, k.scope, k.key, decode(k.fingerprint, 'hex'), 0, '')
        ON CONFLICT DO NOTHING;
        IF NOT FOUND THEN
            SELECT i.fingerprint, i.status, i.body INTO STRICT v_found FROM minutebook.idempotency i
            WHERE i.tenant = k.tenant AND i.caller = k.caller AND i.operation = k.operation AND i.scope = k.scope
              AND i.key = k.key;
            IF v_found.fingerprint = decode(k.fingerprint, 'hex') THEN
                RETURN QUERY SELECT 'duplicate', 0::bigint, NULL::text, NULL::text, NULL::text, 0::bigint,
                    v_found.status, v_found.body, NULL::text;
            ELSE
                RETURN QUERY SELECT 'key_reused', 0::bigint, NULL::text, NULL::text, NULL::text, 0::bigint,
                    NULL::integer, NULL::text, NULL::text;
            END IF;
            RETURN;
        END IF;
    END IF;

    SELECT s.id, s.kind, s.tenant, s.retention_days INTO v_source
    FROM minutebook.streams s WHERE s.name = p_source FOR KEY SHARE;
    SELECT e.hash INTO v_source_hash FROM minutebook.events e WHERE e.stream_id = v_source.id AND e.seq = p_seq;
    IF v_source_hash IS NULL THEN
        v_outcome := 'not_found';
    ELSE
        SELECT sum(e.bytes), array_agg(e.seq ORDER BY e.seq) FILTER (WHERE e.payload IS NULL AND NOT EXISTS (
            SELECT FROM minutebook.events n
            WHERE n.stream_id = e.stream_id AND n.seq > e.seq AND n.seq <= p_seq AND n.origin <> 'harness'
              AND n.payload @> jsonb_build_object('kind', 'payload_erased', 'erasedSeq', e.seq)))
        INTO v_size, v_erased
        FROM minutebook.events e WHERE e.stream_id = v_source.id AND e.seq <= p_seq;
        IF p_seq + 1 + coalesce(cardinality(v_erased), 0) >= p_max_events OR v_size >= p_max_bytes THEN
            v_outcome := 'too_long';
        ELSE
            INSERT INTO minutebook.streams AS s (name, kind, tenant, retention_days)
            VALUES (p_stream, v_source.kind, v_source.tenant, v_source.retention_days)
            ON CONFLICT DO NOTHING RETURNING s.id INTO v_stream_id;
            IF v_stream_id IS NULL THEN
                v_outcome := 'conflict';
            END IF;
        END IF;
    END IF;
    IF v_outcome <> 'appended' THEN
        -- A refused command burns no key.
        DELETE FROM minutebook.idempotency i
        WHERE i.tenant = k.tenant AND i.caller = k.caller AND i.operation = k.operation AND i.scope = k.scope
          AND i.key = k.key;
        RETURN QUERY SELECT v_outcome, 0::bigint, NULL::text, NULL::text, NULL::text, 0::bigint, NULL::integer,
            NULL::text, NULL::text;
        RETURN;
    END IF;

    -- ULIDs of this moment: 10 characters of time, and for each event 16 of a draw that is stored nowhere.
    FOR v_n IN REVERSE 9 .. 0 LOOP
        v_clock := v_clock || substr('0123456789ABCDEFGHJKMNPQRSTVWXYZ', ((v_ms >> (5 * v_n)) & 31)::integer + 1, 1);
    END LOOP;
    PERFORM set_config('minutebook.fork_source', v_source.id::text, true);
    WHILE v_at < p_seq LOOP
        v_seqs := '{}'; v_event_ids := '{}'; v_salts := '{}'; v_commitments := '{}'; v_prevs := '{}'; v_hashes := '{}';
        FOR it IN
            SELECT e.*, e.payload::text AS words FROM minutebook.events e
            WHERE e.stream_id = v_source.id AND e.seq > v_at AND e.seq <= least(v_at + 256, p_seq) ORDER BY e.seq
        LOOP
            v_random := sha256(v_seed || int8send(it.seq));
            v_salt := CASE WHEN it.words IS NULL THEN NULL ELSE substr(v_random, 1, 16) END;
            v_seqs := v_seqs || it.seq;
            v_salts := v_salts || v_salt;
            v_event_ids := v_event_ids || (v_clock || upper(encode(substr(v_random, 17, 8), 'hex')));
            v_commitments := v_commitments
                || coalesce(sha256(v_salt || convert_to(it.words, 'UTF8')), it.commitment);
            v_prevs := v_prevs || v_prev;
            v_prev := minutebook.event_hash(p_stream, it.seq, v_event_ids[cardinality(v_event_ids)], it.type,
                it.schema_version, it.actor_kind, it.actor_id, it.actor_role, it.run_id, it.caused_by, it.origin, it.ts,
                it.redactions, it.classes, NULL, NULL, v_commitments[cardinality(v_commitments)], v_prev);
            v_hashes := v_hashes || v_prev;
        END LOOP;
        INSERT INTO minutebook.events (stream_id, seq, id, type, schema_version, actor_kind, actor_id, actor_role,
            run_id, caused_by, origin, ts, redactions, classes, payload, bytes, salt, commitment, prev_hash, hash)
        SELECT v_stream_id, e.seq, n.id, e.type, e.schema_version, e.actor_kind, e.actor_id, e.actor_role, e.run_id,
            e.caused_by, e.origin, e.ts, e.redactions, e.classes, e.payload, e.bytes, n.salt, n.commitment, n.prev_hash,
            n.hash
        FROM unnest(v_seqs, v_event_ids, v_salts, v_commitments, v_prevs, v_hashes)
            AS n (seq, id, salt, commitment, prev_hash, hash)
        JOIN minutebook.events e ON e.stream_id = v_source.id AND e.seq = n.seq
        ORDER BY e.seq;
        v_at := least(v_at + 256, p_seq);
    END LOOP;
    PERFORM set_config('minutebook.fork_source', '', true);
    INSERT INTO minutebook.forks (stream_id, source_id, through_seq) VALUES (v_stream_id, v_source.id, p_seq);

    -- Rows without a hash are stamped as they enter (10_guard_event_insert.sql).
    INSERT INTO minutebook.events (stream_id, seq, id, type, schema_version, actor_kind, actor_id, actor_role, origin,
        redactions, classes, payload)
    SELECT v_stream_id, p_seq + 1, r.id, r.t, r.v, r.ak, r.ai, r.ar, r.o, r.rd, r.cl,
        r.p || jsonb_build_object('chain', encode(v_source_hash, 'hex'))
    FROM json_to_record(p_event) AS r (id text, t text, v integer, p jsonb, ak text, ai text, ar text, o text,
        rd text[], cl text[]);
    FOR v_n IN 1 .. coalesce(cardinality(v_erased), 0) LOOP
        INSERT INTO minutebook.events (stream_id, seq, id, type, schema_version, actor_kind, actor_id, origin,
            redactions, classes, payload)
        VALUES (v_stream_id, p_seq + 1 + v_n,
            v_clock || upper(encode(substr(sha256(v_seed || int8send(p_seq + 1 + v_n)), 17, 8), 'hex')),
            'state_changed', 1, 'system', 'minutebook', 'broker', '{}', '{}',
            jsonb_build_object('kind', 'payload_erased', 'erasedSeq', v_erased[v_n]));
    END LOOP;

    SELECT e.seq, e.id, e.hash, e.ts, s.bytes INTO STRICT v_found
    FROM minutebook.streams s JOIN minutebook.events e ON e.stream_id = s.id AND e.seq = s.version
    WHERE s.id = v_stream_id;
    IF k.key IS NOT NULL THEN
        v_status := k.status;
        v_body := jsonb_set(jsonb_build_object('seq', v_found.seq, 'id', v_found.id, 'chain',
            encode(v_found.hash, 'hex')) || k.body, '{forkedFrom,chain}', to_jsonb(encode(v_source_hash, 'hex')))::text;
        UPDATE minutebook.idempotency i SET status = v_status, body = v_body, stream_id = v_stream_id
        WHERE i.tenant = k.tenant AND i.caller = k.caller AND i.operation = k.operation AND i.scope = k.scope
          AND i.key = k.key;
    END IF;
    IF p_notify THEN
        PERFORM pg_notify('minutebook', v_stream_id::text);
    END IF;
    RETURN QUERY SELECT v_outcome, v_found.seq, v_found.id, encode(v_found.hash, 'hex'),
        to_char(v_found.ts AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"'), v_found.bytes, v_status, v_body,
        encode(v_source_hash, 'hex');
END
$$;
ALTER FUNCTION minutebook.fork_v1(text, bigint, text, json, bigint, bigint, json, boolean) OWNER TO minutebook_owner;
REVOKE ALL ON FUNCTION minutebook.fork_v1(text, bigint, text, json, bigint, bigint, json, boolean) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION minutebook.fork_v1(text, bigint, text, json, bigint, bigint, json, boolean) TO minutebook_app;
