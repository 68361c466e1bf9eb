-- Beside the log of what comes in over channels: what each message came to, which signatures are spent, and which
-- conversation goes on where. The first is written in the transaction of the event (../functions/47_note_inbound.sql).
SET LOCAL ROLE minutebook_owner;

-- One row a message, by a keyed hash of the platform's id of it; it goes with its stream. done_at: when its effect was
-- there; before that, whoever brings the message again does the effect again, into the same conversation.
CREATE TABLE minutebook.inbound_messages (
    id text CONSTRAINT inbound_messages_pkey PRIMARY KEY,
    stream_id bigint NOT NULL CONSTRAINT inbound_messages_stream REFERENCES minutebook.streams (id) ON DELETE CASCADE,
    tenant text NOT NULL,
    channel text NOT NULL,
    outcome text NOT NULL,
    conversation_id text,
    correlation_id text NOT NULL,
    schema_version integer NOT NULL DEFAULT 1,
    decided_at timestamptz NOT NULL,
    done_at timestamptz
) WITH (fillfactor = 80);
CREATE INDEX inbound_messages_of ON minutebook.inbound_messages (stream_id);

-- Proofs that had their effect, by a keyed hash: none has another one.
CREATE TABLE minutebook.inbound_signatures (
    tenant text NOT NULL,
    channel text NOT NULL,
    signature text NOT NULL,
    schema_version integer NOT NULL DEFAULT 1,
    seen_at timestamptz NOT NULL DEFAULT pg_catalog.clock_timestamp(),
    CONSTRAINT inbound_signatures_pkey PRIMARY KEY (tenant, channel, signature)
);
CREATE INDEX inbound_signatures_seen ON minutebook.inbound_signatures USING brin (seen_at);

-- Which conversation a person and a chat are in. scope: keyed hash of both. handle: makes the conversation, the same one
-- for ever; conversation_id: NULL until it was begun.
CREATE TABLE minutebook.channel_sessions (
    tenant text NOT NULL,
    scope text NOT NULL,
    handle text NOT NULL,
    conversation_id text,
    schema_version integer NOT NULL DEFAULT 1,
    used_at timestamptz NOT NULL DEFAULT pg_catalog.clock_timestamp(),
    CONSTRAINT channel_sessions_pkey PRIMARY KEY (tenant, scope)
) WITH (fillfactor = 70);
CREATE INDEX channel_sessions_used ON minutebook.channel_sessions USING brin (used_at);

GRANT SELECT ON minutebook.inbound_messages, minutebook.inbound_signatures, minutebook.channel_sessions
    TO minutebook_app, minutebook_auditor;
GRANT UPDATE (done_at) ON minutebook.inbound_messages TO minutebook_app;
GRANT INSERT ON minutebook.inbound_signatures TO minutebook_app;
GRANT INSERT, UPDATE (handle, conversation_id, used_at) ON minutebook.channel_sessions TO minutebook_app;
GRANT SELECT, DELETE ON minutebook.inbound_signatures, minutebook.channel_sessions TO minutebook_retention;
