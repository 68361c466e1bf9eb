-- Handles of background turns: where to look for what became of them. What counts is the log; a row remembers which end came
-- first (../functions/55_note_continuation.sql) and goes with its time.
SET LOCAL ROLE minutebook_owner;

-- handle: keyed hash of the token, which is stored nowhere. id: for operators. actor, on_behalf_of: who began it, an empty
-- text for what they lack. account, channel, native: of the end that it was begun from; empty channel: of a token's own.
-- turn, record_ord: of the turn, and of the record that is its end. status: NULL until its one end; the first one stays.
-- expires_at: before the end, when it is over without one; after it, when nobody is told of it any more, ttl_s later.
CREATE TABLE minutebook.continuations (
    id text CONSTRAINT continuations_pkey PRIMARY KEY,
    schema_version integer NOT NULL DEFAULT 1,
    tenant text NOT NULL,
    handle text NOT NULL,
    actor text NOT NULL,
    on_behalf_of text NOT NULL,
    stream_id bigint NOT NULL CONSTRAINT continuations_stream REFERENCES minutebook.streams (id) ON DELETE CASCADE,
    conversation_id text NOT NULL,
    envelope_id text NOT NULL,
    account text NOT NULL,
    channel text NOT NULL,
    native text NOT NULL,
    turn bigint,
    record_ord bigint,
    status text CONSTRAINT continuations_status_known CHECK (status IN ('completed', 'failed', 'cancelled', 'expired')),
    reason text NOT NULL DEFAULT '',
    ttl_s integer NOT NULL,
    begun_at timestamptz NOT NULL DEFAULT pg_catalog.clock_timestamp(),
    ended_at timestamptz,
    expires_at timestamptz NOT NULL,
    CONSTRAINT continuations_handle UNIQUE (tenant, handle)
) WITH (fillfactor = 70);
CREATE INDEX continuations_open ON minutebook.continuations (stream_id, envelope_id) WHERE status IS NULL;
CREATE INDEX continuations_open_of ON minutebook.continuations (tenant, actor, on_behalf_of) WHERE status IS NULL;
CREATE INDEX continuations_of_account ON minutebook.continuations (tenant, account);
CREATE INDEX continuations_by_tenant ON minutebook.continuations (tenant, begun_at, id);
CREATE INDEX continuations_expire ON minutebook.continuations (expires_at);
CREATE INDEX continuations_of_stream ON minutebook.continuations (stream_id);

GRANT SELECT, INSERT, DELETE ON minutebook.continuations TO minutebook_app;
GRANT UPDATE (status, reason, ended_at, expires_at) ON minutebook.continuations TO minutebook_app;
GRANT SELECT (id, schema_version, tenant, stream_id, conversation_id, turn, status, reason, begun_at, ended_at, expires_at)
    ON minutebook.continuations TO minutebook_auditor;
