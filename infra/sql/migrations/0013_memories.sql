-- What agents remember of those who ask them, from one conversation to the next.
SET LOCAL ROLE minutebook_owner;

-- scope: a keyed label of an agent and an asker, or constant:<name>. writer: the label of who asked the turn that wrote it
-- last. classes: of all that had fed that turn. stream_id: its conversation, which takes it along when it goes. Written
-- by ../functions/37_memories.sql alone.
CREATE TABLE minutebook.memories (
    tenant text NOT NULL,
    scope text NOT NULL,
    key text NOT NULL CONSTRAINT memories_key_size CHECK (pg_catalog.char_length(key) BETWEEN 1 AND 128),
    text text NOT NULL CONSTRAINT memories_text_size CHECK (pg_catalog.octet_length(text) BETWEEN 1 AND 4096),
    writer text NOT NULL,
    classes text[] NOT NULL,
    stream_id bigint NOT NULL CONSTRAINT memories_stream REFERENCES minutebook.streams (id) ON DELETE CASCADE,
    updated_at timestamptz NOT NULL DEFAULT pg_catalog.clock_timestamp(),
    CONSTRAINT memories_pkey PRIMARY KEY (scope, tenant, key)
);
CREATE INDEX memories_by_stream ON minutebook.memories (stream_id);
CREATE INDEX memories_by_age ON minutebook.memories (updated_at);

GRANT SELECT ON minutebook.memories TO minutebook_app, minutebook_auditor;
