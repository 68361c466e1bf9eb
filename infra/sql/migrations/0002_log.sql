-- The log: streams, events, idempotency, leases, snapshots. Guards are in ../functions.
SET LOCAL ROLE minutebook_owner;

-- One row: which log this is. `log_id` is new after a restore, so that cursors of another log are told apart.
CREATE TABLE minutebook.log (
    only_row boolean PRIMARY KEY DEFAULT true CHECK (only_row),
    log_id text NOT NULL DEFAULT pg_catalog.replace(pg_catalog.gen_random_uuid()::text, '-', ''),
    audit_feed boolean NOT NULL DEFAULT false,
    created_at timestamptz NOT NULL DEFAULT pg_catalog.clock_timestamp()
);
INSERT INTO minutebook.log DEFAULT VALUES;

-- The sequencer: the row lock orders the writers of a stream. No changing column is indexed, so updates stay HOT.
CREATE TABLE minutebook.streams (
    id bigint GENERATED ALWAYS AS IDENTITY CONSTRAINT streams_pkey PRIMARY KEY,
    name text NOT NULL CONSTRAINT streams_name_key UNIQUE,
    kind text NOT NULL,
    tenant text NOT NULL,
    version bigint NOT NULL DEFAULT 0,
    bytes bigint NOT NULL DEFAULT 0,
    sealed boolean NOT NULL DEFAULT false,
    closed_at timestamptz,
    retention_days integer CONSTRAINT streams_retention_range CHECK (retention_days BETWEEN 1 AND 9999),
    held boolean NOT NULL DEFAULT false,
    head_hash bytea NOT NULL DEFAULT '\x0000000000000000000000000000000000000000000000000000000000000000',
    last_ts timestamptz,
    created_at timestamptz NOT NULL DEFAULT pg_catalog.clock_timestamp(),
    CONSTRAINT streams_sealed_has_time CHECK (sealed = (closed_at IS NOT NULL))
) WITH (fillfactor = 50);

CREATE TABLE minutebook.events (
    stream_id bigint NOT NULL,
    seq bigint NOT NULL,
    id text NOT NULL CONSTRAINT events_id_is_ulid CHECK (octet_length(id) = 26 AND id ~ '^[0-9A-HJKMNP-TV-Z]+$'),
    type text NOT NULL,
    schema_version integer NOT NULL,
    actor_kind text NOT NULL,
    actor_id text NOT NULL,
    actor_role text,
    run_id text,
    caused_by bigint,
    origin text NOT NULL CONSTRAINT events_origin_known CHECK (origin IN ('harness', 'client', 'broker')),
    ts timestamptz NOT NULL,
    redactions text[] NOT NULL,
    classes text[] NOT NULL,
    payload jsonb,
    bytes integer NOT NULL,
    salt bytea,
    commitment bytea NOT NULL,
    origin_client text,
    origin_key text,
    prev_hash bytea NOT NULL,
    hash bytea NOT NULL,
    CONSTRAINT events_pkey PRIMARY KEY (stream_id, seq),
    CONSTRAINT events_erased_whole CHECK ((payload IS NULL) = (salt IS NULL)),
    CONSTRAINT events_origin_whole CHECK ((origin_client IS NULL) = (origin_key IS NULL))
);
-- The stream stands last on purpose: an index that begins with stream_id lets the planner answer the guard's look-up
-- of the previous event by walking the whole stream (baselines.md, the trap).
CREATE UNIQUE INDEX events_origin_key ON minutebook.events (origin_client, origin_key, stream_id)
    WHERE origin_client IS NOT NULL;

CREATE TABLE minutebook.idempotency (
    tenant text NOT NULL,
    caller text NOT NULL,
    operation text NOT NULL,
    scope text NOT NULL,
    key text NOT NULL,
    fingerprint bytea NOT NULL,
    status integer NOT NULL,
    body text NOT NULL,
    stream_id bigint,
    created_at timestamptz NOT NULL DEFAULT pg_catalog.clock_timestamp(),
    CONSTRAINT idempotency_pkey PRIMARY KEY (tenant, caller, operation, scope, key)
);
CREATE INDEX idempotency_created ON minutebook.idempotency USING brin (created_at);
CREATE INDEX idempotency_stream ON minutebook.idempotency (stream_id);

-- What fences a run, a turn or a driver: read and renewed under the stream's row lock.
CREATE TABLE minutebook.leases (
    stream_id bigint NOT NULL,
    purpose text NOT NULL,
    holder text NOT NULL,
    epoch bigint NOT NULL,
    seen_at timestamptz NOT NULL,
    CONSTRAINT leases_pkey PRIMARY KEY (stream_id, purpose)
);

-- A cache of folded state. `schema` names the shape: a reader that does not know it loads from the log instead.
CREATE TABLE minutebook.snapshots (
    stream_id bigint CONSTRAINT snapshots_pkey PRIMARY KEY
        -- A snapshot that is saved while its stream is purged must not outlive it (rules.md, law 10).
        CONSTRAINT snapshots_stream REFERENCES minutebook.streams (id) ON DELETE CASCADE,
    seq bigint NOT NULL,
    schema text NOT NULL,
    state jsonb NOT NULL
);

-- The optional audit feed: a dense position for every event, given after its transaction is past doubt. `txid` is the
-- appending transaction's, or that of the stream's range before it where that is higher (11_advance_streams.sql).
CREATE TABLE minutebook.feed_queue (
    txid xid8 NOT NULL,
    stream_id bigint NOT NULL,
    from_seq bigint NOT NULL,
    to_seq bigint NOT NULL,
    CONSTRAINT feed_queue_pkey PRIMARY KEY (txid, stream_id, from_seq)
);
CREATE INDEX feed_queue_stream ON minutebook.feed_queue (stream_id, txid);
CREATE TABLE minutebook.feed (
    position bigint CONSTRAINT feed_pkey PRIMARY KEY,
    stream_id bigint NOT NULL,
    seq bigint NOT NULL
);

ALTER TABLE minutebook.events ENABLE ROW LEVEL SECURITY;
ALTER TABLE minutebook.events FORCE ROW LEVEL SECURITY;
ALTER TABLE minutebook.streams ENABLE ROW LEVEL SECURITY;
ALTER TABLE minutebook.streams FORCE ROW LEVEL SECURITY;

CREATE POLICY events_read ON minutebook.events FOR SELECT
    TO minutebook_owner, minutebook_app, minutebook_projector, minutebook_auditor, minutebook_eraser USING (true);
CREATE POLICY events_append ON minutebook.events FOR INSERT TO minutebook_owner WITH CHECK (true);
CREATE POLICY events_erase ON minutebook.events FOR UPDATE TO minutebook_eraser
    USING (payload IS NOT NULL) WITH CHECK (payload IS NULL);
CREATE POLICY streams_read ON minutebook.streams FOR SELECT
    TO minutebook_owner, minutebook_app, minutebook_projector, minutebook_auditor, minutebook_eraser USING (true);
CREATE POLICY streams_create ON minutebook.streams FOR INSERT TO minutebook_owner WITH CHECK (true);
CREATE POLICY streams_advance ON minutebook.streams FOR UPDATE TO minutebook_owner USING (true) WITH CHECK (true);
-- Retention sees and deletes only what the rules let go: sealed, past its days, under no hold.
CREATE POLICY streams_expired_read ON minutebook.streams FOR SELECT TO minutebook_retention
    USING (sealed AND NOT held AND closed_at + pg_catalog.make_interval(days => retention_days)
           <= pg_catalog.clock_timestamp());
CREATE POLICY streams_expired_delete ON minutebook.streams FOR DELETE TO minutebook_retention
    USING (sealed AND NOT held AND closed_at + pg_catalog.make_interval(days => retention_days)
           <= pg_catalog.clock_timestamp());
CREATE POLICY events_expired_read ON minutebook.events FOR SELECT TO minutebook_retention
    USING (stream_id IN (SELECT s.id FROM minutebook.streams s));
CREATE POLICY events_expired_delete ON minutebook.events FOR DELETE TO minutebook_retention
    USING (stream_id IN (SELECT s.id FROM minutebook.streams s));

-- What stands beside a live stream is out of retention's reach too: a lease that is gone would begin again at epoch 1
-- and let a fenced writer back in, a key that is gone would let a retried command run twice.
ALTER TABLE minutebook.idempotency ENABLE ROW LEVEL SECURITY;
ALTER TABLE minutebook.leases ENABLE ROW LEVEL SECURITY;
ALTER TABLE minutebook.snapshots ENABLE ROW LEVEL SECURITY;
CREATE POLICY idempotency_read ON minutebook.idempotency FOR SELECT TO minutebook_app, minutebook_auditor USING (true);
CREATE POLICY idempotency_expired ON minutebook.idempotency TO minutebook_retention
    USING (stream_id IN (SELECT s.id FROM minutebook.streams s)
           OR created_at + interval '30 days' <= pg_catalog.clock_timestamp());
CREATE POLICY leases_read ON minutebook.leases FOR SELECT TO minutebook_app, minutebook_auditor USING (true);
CREATE POLICY leases_expired ON minutebook.leases TO minutebook_retention
    USING (stream_id IN (SELECT s.id FROM minutebook.streams s));
CREATE POLICY snapshots_read ON minutebook.snapshots FOR SELECT TO minutebook_auditor USING (true);
CREATE POLICY snapshots_keep ON minutebook.snapshots TO minutebook_app USING (true) WITH CHECK (true);
CREATE POLICY snapshots_expired ON minutebook.snapshots TO minutebook_retention
    USING (stream_id IN (SELECT s.id FROM minutebook.streams s));

GRANT SELECT ON minutebook.log, minutebook.streams, minutebook.events, minutebook.idempotency, minutebook.leases,
    minutebook.snapshots, minutebook.feed, minutebook.feed_queue TO minutebook_app, minutebook_auditor;
GRANT INSERT, UPDATE ON minutebook.snapshots TO minutebook_app;
GRANT SELECT ON minutebook.log, minutebook.streams, minutebook.events TO minutebook_projector;
GRANT SELECT (stream_id, seq, type, origin, payload), UPDATE (payload, salt) ON minutebook.events TO minutebook_eraser;
GRANT SELECT ON minutebook.streams TO minutebook_eraser;
GRANT SELECT (id, name, kind, tenant, version, bytes, sealed, closed_at, retention_days, held),
    DELETE ON minutebook.streams TO minutebook_retention;
GRANT SELECT (stream_id, seq, bytes), DELETE ON minutebook.events TO minutebook_retention;
GRANT SELECT (stream_id, created_at, tenant), DELETE ON minutebook.idempotency TO minutebook_retention;
GRANT SELECT (stream_id, purpose), DELETE ON minutebook.leases TO minutebook_retention;
GRANT SELECT (stream_id, seq), DELETE ON minutebook.snapshots TO minutebook_retention;
