-- Read models. The projector owns them: it folds into them, builds shadows beside them and swaps.
SET LOCAL ROLE minutebook_projector;

-- How far a projection has folded a stream; moves in one transaction with the rows.
CREATE TABLE minutebook_views.checkpoints (
    projection text NOT NULL,
    stream_id bigint NOT NULL,
    seq bigint NOT NULL DEFAULT 0,
    CONSTRAINT checkpoints_pkey PRIMARY KEY (projection, stream_id)
) WITH (fillfactor = 70);

-- A stream whose fold failed is parked here alone; others go on.
CREATE TABLE minutebook_views.parked (
    projection text NOT NULL,
    stream_id bigint NOT NULL,
    seq bigint NOT NULL,
    reason text NOT NULL,
    attempts integer NOT NULL DEFAULT 1,
    parked_at timestamptz NOT NULL DEFAULT pg_catalog.clock_timestamp(),
    retry_at timestamptz NOT NULL,
    CONSTRAINT parked_pkey PRIMARY KEY (projection, stream_id)
);

CREATE TABLE minutebook_views.room_list (
    stream_id bigint CONSTRAINT room_list_pkey PRIMARY KEY,
    room_id text NOT NULL,
    tenant text NOT NULL,
    last_seq bigint NOT NULL,
    last_ts timestamptz NOT NULL,
    sealed boolean NOT NULL,
    people text[] NOT NULL,
    state jsonb NOT NULL
);
CREATE INDEX room_list_by_tenant ON minutebook_views.room_list (tenant, room_id);
CREATE INDEX room_list_by_person ON minutebook_views.room_list USING gin (people);

CREATE TABLE minutebook_views.transcript (
    stream_id bigint NOT NULL,
    seq bigint NOT NULL,
    ts timestamptz NOT NULL,
    type text NOT NULL,
    actor text NOT NULL,
    run_id text,
    classes text[] NOT NULL,
    heading text NOT NULL,
    body text NOT NULL,
    CONSTRAINT transcript_pkey PRIMARY KEY (stream_id, seq)
);

GRANT SELECT ON ALL TABLES IN SCHEMA minutebook_views TO minutebook_app, minutebook_auditor;
GRANT SELECT (stream_id), DELETE ON ALL TABLES IN SCHEMA minutebook_views TO minutebook_retention;
