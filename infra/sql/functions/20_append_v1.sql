-- The one append path. Appends a batch for many streams in one transaction, each item with its own outcome; no loser
-- aborts the others. Outcomes are found by look-ups under the streams' row locks, which are taken in id order.
--
-- p_streams: the distinct stream names of the batch.
-- p_items:  [{n, s, expected, count, kind?, tenant?, retention?, seal?, hold?, fencePurpose?, fenceHolder?, fenceEpoch?,
--             fenceStream?, keyTenant?, keyCaller?, keyOperation?, keyScope?, key?, fingerprint?, status?, body?}], n
--           from 1 upwards in order, s the 1-based place in p_streams; kind and tenant create the stream, where expected
--           is 0 and any fence is on the lease of another stream, fenceStream, and holds; no two items share a key.
-- p_events: [{i, k, id, t, v, p, ak, ai, ar?, r?, cb?, o, rd, cl, oc?, ok?}], i the item, k from 1 within it, in order.
-- p_creates: whether any item creates a stream.
-- Items of one stream that follow each other stand on each other: behind a refused one, all of them conflict.
-- Outcomes: appended, conflict, duplicate (with the stored status and body), key_reused, sealed, fenced.
-- `seq` is the last seq appended, or the stream's head where nothing was; `chain` the hash at it; `bytes` the payload
-- bytes of the stream up to it; `body` the stored body of a keyed item.
--
-- MB005 and 23505 abort the batch: it may go again, its items apart.
--
-- The settings hold the plans: every look-up goes by a key's index, whatever the statistics say. Joins to `streams` say
-- `= ANY (ARRAY[x])`: with a plain `=` the planner, while it believes the table tiny, walks a whole index in its order.
CREATE OR REPLACE FUNCTION minutebook.append_v1(
    p_streams text[], p_items json, p_events json, p_creates boolean, p_notify boolean DEFAULT true)
RETURNS TABLE (item integer, outcome text, seq bigint, event_id text, chain text, ts text, bytes bigint,
               status integer, body text)
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
    v_claimed integer[] := '{}';
    v_ids bigint[];
    v_versions bigint[];
    v_sealed boolean[];
    v_heads bytea[];
    v_bytes bigint[];
    v_clocks timestamptz[];
    v_places integer[] := '{}';
    v_outcomes text[] := '{}';
    v_first bigint[] := '{}';
    v_last bigint[] := '{}';
    v_event_ids text[] := '{}';
    v_chains bytea[] := '{}';
    v_times timestamptz[] := '{}';
    v_sizes bigint[] := '{}';
    v_status integer[] := '{}';
    v_body text[] := '{}';
    v_keyed boolean := false;
    v_any boolean := false;
    v_n integer := 0;
    v_newest integer[] := '{}';
    v_behind integer[] := '{}';
    v_refused_to bigint[] := '{}';
    v_missing bigint := 0;
    v_rows minutebook.events[] := '{}';
    v_row integer := 0;
    v_place integer;
    v_seq bigint;
    v_seed bytea;
    v_salt bytea;
    v_payload text;
    v_commitment bytea;
    v_ts timestamptz;
    v_hash bytea;
    v_seal bigint[] := '{}';
    v_held bigint[] := '{}';
    v_released bigint[] := '{}';
    v_found record;
    v_wake text := '';
BEGIN
    IF current_setting('transaction_isolation') <> 'read committed' THEN
        -- Look-ups under the locks must see what was committed while waiting for them.
        RAISE EXCEPTION 'append_v1 runs under READ COMMITTED only' USING ERRCODE = 'MB005';
    END IF;
    IF p_creates THEN
        -- A creation's key is not under any stream's lock, so it is claimed first and in key order.
        FOR it IN
            SELECT i.* FROM json_to_recordset(p_items) AS i (n integer, kind text, "keyTenant" text,
                "keyCaller" text, "keyOperation" text, "keyScope" text, key text, fingerprint text)
            WHERE i.kind IS NOT NULL AND i.key IS NOT NULL
            ORDER BY i."keyTenant", i."keyCaller", i."keyOperation", i."keyScope", i.key
        LOOP
            INSERT INTO minutebook.idempotency (tenant, caller, operation, scope, key, fingerprint, status, body)
            VALUES (it."keyTenant", it."keyCaller", it."keyOperation", it."keyScope", it.key,
                    decode(it.fingerprint, 'hex'), 0, '')
            ON CONFLICT DO NOTHING;
            IF FOUND THEN
                v_claimed := v_claimed || it.n;
            END IF;
        END LOOP;
        INSERT INTO minutebook.streams (name, kind, tenant, retention_days)
        SELECT p_streams[i.s], i.kind, i.tenant, i.retention
        FROM json_to_recordset(p_items) AS i (n integer, s integer, expected bigint, kind text, tenant text,
            retention integer, "fencePurpose" text, "fenceHolder" text, "fenceEpoch" bigint, "fenceStream" text,
            key text)
        WHERE i.kind IS NOT NULL AND (i.key IS NULL OR i.n = ANY (v_claimed))
          -- What must be refused below creates nothing.
          AND i.expected = 0 AND (i."fenceHolder" IS NULL OR EXISTS (
              SELECT FROM minutebook.leases l
              WHERE l.stream_id = (SELECT s.id FROM minutebook.streams s WHERE s.name = i."fenceStream")
                AND l.purpose = i."fencePurpose" AND l.holder = i."fenceHolder" AND l.epoch = i."fenceEpoch"))
        ORDER BY 1
        ON CONFLICT DO NOTHING;
    END IF;

    -- FOR NO KEY UPDATE above a sort locks in the order of the sort. "+ 0" keeps the planner from sorting by a walk over
    -- the whole primary key, which a plan made when there were few streams would do for ever.
    PERFORM FROM minutebook.streams s WHERE s.name = ANY (p_streams) ORDER BY s.id + 0 FOR NO KEY UPDATE;
    SELECT array_agg(s.id), array_agg(s.version), array_agg(s.sealed), array_agg(s.head_hash), array_agg(s.bytes),
        array_agg(s.last_ts)
    INTO v_ids, v_versions, v_sealed, v_heads, v_bytes, v_clocks
    FROM unnest(p_streams) AS n (name) LEFT JOIN minutebook.streams s ON s.name = ANY (ARRAY[n.name]);

    FOR it IN
        SELECT i.* FROM json_to_recordset(p_items) AS i (n integer, s integer, expected bigint, count integer,
            seal boolean, hold boolean, "fencePurpose" text, "fenceHolder" text, "fenceEpoch" bigint,
            "fenceStream" text, "keyTenant" text, "keyCaller" text, "keyOperation" text, "keyScope" text, key text, fingerprint text)
    LOOP
        v_n := it.n;
        v_places[v_n] := it.s;
        v_outcomes[v_n] := NULL;
        v_last[v_n] := v_versions[it.s];
        v_chains[v_n] := v_heads[it.s];
        v_sizes[v_n] := v_bytes[it.s];
        IF it.key IS NOT NULL AND v_n <> ALL (v_claimed) THEN
            SELECT k.fingerprint, k.status, k.body INTO v_found FROM minutebook.idempotency k
            WHERE k.tenant = it."keyTenant" AND k.caller = it."keyCaller" AND k.operation = it."keyOperation"
              AND k.scope = it."keyScope" AND k.key = it.key;
            IF FOUND AND v_found.status = 0 THEN
                RAISE EXCEPTION 'two items of a batch with one idempotency key' USING ERRCODE = 'unique_violation';
            ELSIF FOUND AND v_found.fingerprint = decode(it.fingerprint, 'hex') THEN
                v_outcomes[v_n] := 'duplicate';
                v_status[v_n] := v_found.status;
                v_body[v_n] := v_found.body;
            ELSIF FOUND THEN
                v_outcomes[v_n] := 'key_reused';
            END IF;
        END IF;
        IF v_outcomes[v_n] IS NULL AND v_sealed[it.s] THEN
            v_outcomes[v_n] := 'sealed';
        END IF;
        IF v_outcomes[v_n] IS NULL AND it."fenceHolder" IS NOT NULL THEN
            -- Of another stream the lease's own row is the lock: whoever takes it over waits here, or is waited for.
            UPDATE minutebook.leases l SET seen_at = clock_timestamp()
            WHERE l.stream_id = CASE WHEN it."fenceStream" IS NULL THEN v_ids[it.s] ELSE
                    (SELECT s.id FROM minutebook.streams s WHERE s.name = it."fenceStream") END
              AND l.purpose = it."fencePurpose" AND l.holder = it."fenceHolder" AND l.epoch = it."fenceEpoch";
            IF NOT FOUND THEN
                v_outcomes[v_n] := 'fenced';
            END IF;
        END IF;
        -- An item that stands on a refused one was decided on events that are not there, also where somebody else's have
        -- brought the stream to the version that it expects.
        IF v_outcomes[v_n] IS NULL
            AND (v_versions[it.s] IS DISTINCT FROM it.expected OR it.expected = v_refused_to[it.s])
        THEN
            v_outcomes[v_n] := 'conflict';
        END IF;
        IF v_outcomes[v_n] IS NULL THEN
            v_outcomes[v_n] := 'appended';
            v_first[v_n] := v_versions[it.s];
            v_versions[it.s] := v_versions[it.s] + it.count;
            v_last[v_n] := v_versions[it.s];
            v_missing := v_missing + it.count;
            v_any := v_any OR it.count > 0;
            v_keyed := v_keyed OR it.key IS NOT NULL;
            IF it.seal THEN
                v_sealed[it.s] := true;
                v_seal := v_seal || v_ids[it.s];
            END IF;
            IF it.hold THEN
                v_held := v_held || v_ids[it.s];
                v_released := array_remove(v_released, v_ids[it.s]);
            ELSIF NOT it.hold THEN
                v_released := v_released || v_ids[it.s];
                v_held := array_remove(v_held, v_ids[it.s]);
            END IF;
        ELSIF v_n = ANY (v_claimed) THEN
            -- A refused command burns no key.
            DELETE FROM minutebook.idempotency k
            WHERE k.tenant = it."keyTenant" AND k.caller = it."keyCaller" AND k.operation = it."keyOperation"
              AND k.scope = it."keyScope" AND k.key = it.key;
        END IF;
        IF v_outcomes[v_n] <> 'appended' AND it.count > 0 THEN
            v_refused_to[it.s] := it.expected + it.count;
        END IF;
        IF v_outcomes[v_n] = 'appended' AND it.count > 0 THEN
            v_newest[it.s] := v_n;
            v_refused_to[it.s] := NULL;
        ELSE
            v_behind[v_n] := v_newest[it.s];  -- the item of this batch whose last event is the head that it found
        END IF;
    END LOOP;

    IF v_any THEN
        v_seed := uuid_send(gen_random_uuid()) || uuid_send(gen_random_uuid());
        FOR it IN
            SELECT e.* FROM json_to_recordset(p_events) AS e (i integer, k integer, id text, t text, v integer, p jsonb,
                ak text, ai text, ar text, r text, cb bigint, o text, rd text[], cl text[], oc text, ok text)
            WHERE v_outcomes[e.i] = 'appended'
        LOOP
            v_missing := v_missing - 1;
            v_row := v_row + 1;
            v_place := v_places[it.i];
            v_seq := v_first[it.i] + it.k;
            v_payload := it.p::text;
            IF v_payload IS NULL THEN
                RAISE EXCEPTION 'an event enters the log with its payload' USING ERRCODE = 'MB004';
            END IF;
            -- One draw of randomness serves the call; each salt is as unknown as the seed, which is stored nowhere.
            v_salt := substr(sha256(v_seed || int4send(v_row)), 1, 16);
            v_commitment := sha256(v_salt || convert_to(v_payload, 'UTF8'));
            v_ts := greatest(clock_timestamp(), v_clocks[v_place]);
            v_hash := minutebook.event_hash(p_streams[v_place], v_seq, it.id, it.t, it.v, it.ak, it.ai, it.ar, it.r,
                it.cb, it.o, v_ts, it.rd, it.cl, it.oc, it.ok, v_commitment, v_heads[v_place]);
            -- In the order of the table's columns.
            v_rows[v_row] := ROW(v_ids[v_place], v_seq, it.id, it.t, it.v, it.ak, it.ai, it.ar, it.r, it.cb, it.o, v_ts,
                it.rd, it.cl, it.p, octet_length(v_payload), v_salt, v_commitment, it.oc, it.ok, v_heads[v_place],
                v_hash)::minutebook.events;
            v_heads[v_place] := v_hash;
            v_clocks[v_place] := v_ts;
            v_bytes[v_place] := v_bytes[v_place] + octet_length(v_payload);
            IF v_seq = v_last[it.i] THEN
                v_event_ids[it.i] := it.id;
                v_chains[it.i] := v_hash;
                v_times[it.i] := v_ts;
                v_sizes[it.i] := v_bytes[v_place];
                v_wake := v_wake || ',' || v_ids[v_place];
            END IF;
        END LOOP;
        IF v_missing <> 0 THEN
            RAISE EXCEPTION 'the items count other events than there are' USING ERRCODE = 'MB003';
        END IF;
        INSERT INTO minutebook.events SELECT r.* FROM unnest(v_rows) AS r;
        FOR v_n IN 1 .. coalesce(array_upper(v_behind, 1), 0) LOOP
            IF v_behind[v_n] IS NOT NULL THEN
                v_chains[v_n] := v_chains[v_behind[v_n]];
                v_sizes[v_n] := v_sizes[v_behind[v_n]];
            END IF;
        END LOOP;
        IF p_notify THEN
            PERFORM pg_notify('minutebook', CASE WHEN octet_length(v_wake) > 7900 THEN '*' ELSE substr(v_wake, 2) END);
        END IF;
    END IF;
    IF v_seal <> '{}' THEN
        UPDATE minutebook.streams s SET sealed = true, closed_at = clock_timestamp() WHERE s.id = ANY (v_seal);
    END IF;
    IF v_held <> '{}' OR v_released <> '{}' THEN
        UPDATE minutebook.streams s SET held = (s.id = ANY (v_held)) WHERE s.id = ANY (v_held || v_released);
    END IF;
    IF v_keyed THEN
        FOR it IN
            SELECT i.* FROM json_to_recordset(p_items) AS i (n integer, s integer, "keyTenant" text, "keyCaller" text,
                "keyOperation" text, "keyScope" text, key text, fingerprint text, status integer, body jsonb)
            WHERE i.key IS NOT NULL AND v_outcomes[i.n] = 'appended'
        LOOP
            v_status[it.n] := it.status;
            v_body[it.n] := (jsonb_strip_nulls(jsonb_build_object('seq', v_last[it.n], 'id', v_event_ids[it.n],
                'chain', encode(v_chains[it.n], 'hex'))) || it.body)::text;
            INSERT INTO minutebook.idempotency AS k
                (tenant, caller, operation, scope, key, fingerprint, status, body, stream_id)
            VALUES (it."keyTenant", it."keyCaller", it."keyOperation", it."keyScope", it.key,
                decode(it.fingerprint, 'hex'), it.status, v_body[it.n], v_ids[it.s])
            ON CONFLICT ON CONSTRAINT idempotency_pkey
                DO UPDATE SET status = EXCLUDED.status, body = EXCLUDED.body, stream_id = EXCLUDED.stream_id
                WHERE k.status = 0;
            IF NOT FOUND THEN
                -- The key went to another item of this batch, or to a stream that this lock does not cover.
                RAISE EXCEPTION 'two commands with one idempotency key at once' USING ERRCODE = 'unique_violation';
            END IF;
        END LOOP;
    END IF;

    RETURN QUERY
    SELECT g, v_outcomes[g], coalesce(v_last[g], 0), v_event_ids[g], encode(v_chains[g], 'hex'),
        to_char(v_times[g] AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"'), v_sizes[g], v_status[g], v_body[g]
    FROM generate_series(1, cardinality(v_outcomes)) AS g;
END
$$;
ALTER FUNCTION minutebook.append_v1(text[], json, json, boolean, boolean) OWNER TO minutebook_owner;
REVOKE ALL ON FUNCTION minutebook.append_v1(text[], json, json, boolean, boolean) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION minutebook.append_v1(text[], json, json, boolean, boolean) TO minutebook_app;
