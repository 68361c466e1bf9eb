-- Beside the log of deliveries: where each stands and what is due, written in the transaction of the event
-- (../functions/40_note_delivery.sql); payloads, which may be deleted; breakers, pauses and paces.
SET LOCAL ROLE minutebook_owner;

-- place: in the order of planning, also within one append, where the ids of streams are not. due_at: not sooner is there
-- anything to do; of an open attempt, when its lease is gone. blocked: an earlier delivery of its order is under way
-- (behind: the one that waits although this one goes). ended_at: of the terminal state. seal_at: when neither a receipt nor
-- a replay is taken any more.
CREATE TABLE minutebook.deliveries (
    stream_id bigint CONSTRAINT deliveries_pkey PRIMARY KEY
        CONSTRAINT deliveries_stream REFERENCES minutebook.streams (id) ON DELETE CASCADE,
    place bigint GENERATED ALWAYS AS IDENTITY,
    id text NOT NULL CONSTRAINT deliveries_id_key UNIQUE,
    tenant text NOT NULL,
    channel text NOT NULL,
    destination text NOT NULL,
    lane text NOT NULL,
    state text NOT NULL CONSTRAINT deliveries_state_known CHECK (state IN ('planned', 'attempting', 'waiting', 'unknown',
        'accepted', 'dead', 'cancelled', 'expired')),
    due_at timestamptz NOT NULL,
    blocked boolean NOT NULL,
    behind text,
    order_key text,
    order_until timestamptz,
    attempts integer NOT NULL DEFAULT 0,
    reason text NOT NULL DEFAULT '',
    conversation_id text,
    run_id text,
    correlation_id text NOT NULL,
    expires_at timestamptz NOT NULL,
    codec text NOT NULL,
    codec_version integer NOT NULL,
    planned_at timestamptz NOT NULL,
    updated_at timestamptz NOT NULL,
    ended_at timestamptz,
    seal_at timestamptz,
    has_payload boolean NOT NULL DEFAULT true,
    is_sealed boolean NOT NULL DEFAULT false
) WITH (fillfactor = 70);
CREATE INDEX deliveries_due ON minutebook.deliveries (lane, due_at, place) WHERE ended_at IS NULL AND NOT blocked;
CREATE INDEX deliveries_in_order ON minutebook.deliveries (order_key, place)
    WHERE ended_at IS NULL AND order_key IS NOT NULL;
CREATE INDEX deliveries_blocked ON minutebook.deliveries (order_key, place) WHERE ended_at IS NULL AND blocked;
CREATE INDEX deliveries_expire ON minutebook.deliveries (expires_at) WHERE ended_at IS NULL;
CREATE INDEX deliveries_with_payload ON minutebook.deliveries (ended_at) WHERE has_payload AND ended_at IS NOT NULL;
CREATE INDEX deliveries_to_seal ON minutebook.deliveries (seal_at) WHERE NOT is_sealed AND seal_at IS NOT NULL;
-- What operators list, newest first. Most of all end as accepted: of these the tenant's own order is good enough.
CREATE INDEX deliveries_by_tenant ON minutebook.deliveries (tenant, stream_id);
CREATE INDEX deliveries_by_state ON minutebook.deliveries (tenant, state, stream_id) WHERE state <> 'accepted';
CREATE INDEX deliveries_by_channel ON minutebook.deliveries (channel, stream_id);
CREATE INDEX deliveries_by_destination ON minutebook.deliveries (destination, stream_id);
CREATE INDEX deliveries_by_correlation ON minutebook.deliveries (correlation_id, stream_id);
CREATE INDEX deliveries_by_conversation ON minutebook.deliveries (conversation_id, stream_id)
    WHERE conversation_id IS NOT NULL;
CREATE INDEX deliveries_by_run ON minutebook.deliveries (run_id, stream_id) WHERE run_id IS NOT NULL;

-- Address and parts, as the codec writes them. Put while the plan is appended: what no plan follows goes by its age.
-- key: what opens the body where it is encrypted, itself encrypted; without it the body is noise in every backup.
CREATE TABLE minutebook.delivery_payloads (
    delivery_id text CONSTRAINT delivery_payloads_pkey PRIMARY KEY,
    tenant text NOT NULL,
    codec text NOT NULL,
    codec_version integer NOT NULL,
    body bytea NOT NULL,
    key bytea,
    created_at timestamptz NOT NULL DEFAULT pg_catalog.clock_timestamp()
);
CREATE INDEX delivery_payloads_created ON minutebook.delivery_payloads USING brin (created_at);

-- One row a destination that failed. retry_at: shut until then, and then for all but one probe at a time.
CREATE TABLE minutebook.delivery_breakers (
    destination text CONSTRAINT delivery_breakers_pkey PRIMARY KEY,
    channel text NOT NULL,
    failures integer NOT NULL,
    opened integer NOT NULL DEFAULT 0,
    retry_at timestamptz,
    probe_until timestamptz,
    updated_at timestamptz NOT NULL DEFAULT pg_catalog.clock_timestamp()
) WITH (fillfactor = 50);
CREATE INDEX delivery_breakers_channel ON minutebook.delivery_breakers (channel);

-- Channels that an operator stopped; until NULL: for as long as nobody resumes it.
CREATE TABLE minutebook.channel_pauses (
    channel text CONSTRAINT channel_pauses_pkey PRIMARY KEY,
    reason text NOT NULL,
    actor text NOT NULL,
    paused_at timestamptz NOT NULL DEFAULT pg_catalog.clock_timestamp(),
    until timestamptz
);

-- The pace of a channel with a ratePerSecond, over all processes.
CREATE TABLE minutebook.channel_paces (
    channel text CONSTRAINT channel_paces_pkey PRIMARY KEY,
    tokens double precision NOT NULL,
    at timestamptz NOT NULL
) WITH (fillfactor = 50);

GRANT SELECT ON minutebook.deliveries, minutebook.delivery_breakers, minutebook.channel_pauses, minutebook.channel_paces
    TO minutebook_app, minutebook_auditor;
GRANT UPDATE (has_payload, is_sealed) ON minutebook.deliveries TO minutebook_app;
GRANT SELECT, INSERT, DELETE ON minutebook.delivery_payloads TO minutebook_app;
GRANT SELECT (delivery_id, tenant, codec, codec_version, created_at) ON minutebook.delivery_payloads TO minutebook_auditor;
GRANT INSERT, UPDATE, DELETE ON minutebook.delivery_breakers, minutebook.channel_pauses, minutebook.channel_paces
    TO minutebook_app;
