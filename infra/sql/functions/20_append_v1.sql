-- The one append path. Appends a batch for many streams in one transaction, each item with its own outcome; no loser
-- aborts the others. Outcomes are found by look-ups under the streams' row locks, which are taken in id order.
--
-- p_streams: the distinct stream names of the batch.
-- p_items:  [{n, s, expected, count, kind?, tenant?, retention?, seal?, hold?, fencePurpose?, fenceHolder?, fenceEpoch?,
--             keyTenant?, keyCaller?, keyOperation?, keyScope?, key?, fingerprint?, status?, body?}], n from 1 upwards
--           in order, s the 1-based place in p_streams; kind and tenant create the stream, where expected is 0 and no
--           fence is given; no two items share a key.
-- p_events: [{i, k, id, t, v, p, ak, ai, ar?, r?, cb?, o, rd, cl, oc?, ok?}], i the item, k from 1 within it, in order.
-- p_creates: whether any item creates a stream.
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
    v_missing bigint := 0;
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
            retention integer, "fenceHolder" text, key text)
        WHERE i.kind IS NOT NULL AND (i.key IS NULL OR i.n = ANY (v_claimed))
          AND i.expected = 0 AND i."fenceHolder" IS NULL  -- what must be refused below creates nothing
        ORDER BY 1
        ON CONFLICT DO NOTHING;
    END IF;

    -- FOR NO KEY UPDATE above a sort locks in the order of the sort. "+ 0" keeps the planner from sorting by a walk over
    -- the whole primary key, which a plan made when there were few streams would do for ever.
    PERFORM FROM minutebook.streams s WHERE s.name = ANY (p_streams) ORDER BY s.id + 0 FOR NO KEY UPDATE;
    SELECT array_agg(s.id), array_agg(s.version), array_agg(s.sealed), array_agg(s.head_hash), array_agg(s.bytes)
    INTO v_ids, v_versions, v_sealed, v_heads, v_bytes
    FROM unnest(p_streams) AS n (name) LEFT JOIN minutebook.streams s ON s.name = ANY (ARRAY[n.name]);

    FOR it IN
        SELECT i.* FROM json_to_recordset(p_items) AS i (n integer, s integer, expected bigint, count integer,
            seal boolean, hold boolean, "fencePurpose" text, "fenceHolder" text, "fenceEpoch" bigint,
            "keyTenant" text, "keyCaller" text, "keyOperation" text, "keyScope" text, key text, fingerprint text)
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
            UPDATE minutebook.leases l SET seen_at = clock_timestamp()
            WHERE l.stream_id = v_ids[it.s] AND l.purpose = it."fencePurpose"
              AND l.holder = it."fenceHolder" AND l.epoch = it."fenceEpoch";
            IF NOT FOUND THEN
                v_outcomes[v_n] := 'fenced';
            END IF;
        END IF;
        IF v_outcomes[v_n] IS NULL AND v_versions[it.s] IS DISTINCT FROM it.expected THEN
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
        IF v_outcomes[v_n] = 'appended' AND it.count > 0 THEN
            v_newest[it.s] := v_n;
        ELSE
            v_behind[v_n] := v_newest[it.s];  -- the item of this batch whose last event is the head that it found
        END IF;
    END LOOP;

    IF v_any THEN
        v_n := 1;
        FOR it IN
            INSERT INTO minutebook.events AS w (stream_id, seq, id, type, schema_version, actor_kind, actor_id, actor_role,
                run_id, caused_by, origin, redactions, classes, payload, origin_client, origin_key)
            SELECT v_ids[v_places[e.i]], v_first[e.i] + e.k, e.id, e.t, e.v, e.ak, e.ai, e.ar,
                e.r, e.cb, e.o, e.rd, e.cl, e.p, e.oc, e.ok
            FROM json_to_recordset(p_events) AS e (i integer, k integer, id text, t text, v integer, p jsonb, ak text,
                ai text, ar text, r text, cb bigint, o text, rd text[], cl text[], oc text, ok text)
            WHERE v_outcomes[e.i] = 'appended'
            RETURNING w.stream_id, w.seq, w.id, w.hash, w.ts, w.bytes
        LOOP
            -- Rows come back in the order of the items; an item ends with the row of its last seq.
            WHILE v_outcomes[v_n] <> 'appended' OR v_last[v_n] = v_first[v_n] LOOP
                v_n := v_n + 1;
            END LOOP;
            v_missing := v_missing - 1;
            v_bytes[v_places[v_n]] := v_bytes[v_places[v_n]] + it.bytes;
            IF it.seq = v_last[v_n] THEN
                v_event_ids[v_n] := it.id;
                v_chains[v_n] := it.hash;
                v_times[v_n] := it.ts;
                v_sizes[v_n] := v_bytes[v_places[v_n]];
                v_wake := v_wake || ',' || it.stream_id;
                v_n := v_n + 1;
            END IF;
        END LOOP;
        IF v_missing <> 0 THEN
            RAISE EXCEPTION 'the items count other events than there are' USING ERRCODE = 'MB003';
        END IF;
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
