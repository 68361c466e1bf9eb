-- Beside the log of answers: which of them wait for the end of their turn, and the addresses that the log may not hold; to
-- whom a delivery goes, so that an unlinking finds it; and pushes of the last hour.
SET LOCAL ROLE minutebook_owner;

-- One row an answer that is on its way; gone once its deliveries are planned. stream_id, envelope_id: of the message, in its
-- conversation. fingerprint: keyed hash of where it was asked to go. details: addresses, as JSON. turn, user_seq, reply_seq:
-- what became of the message (../functions/51_note_answer.sql). due_at: since when there is something to do.
CREATE TABLE minutebook.answers (
    id text CONSTRAINT answers_pkey PRIMARY KEY,
    tenant text NOT NULL,
    schema_version integer NOT NULL DEFAULT 1,
    stream_id bigint NOT NULL CONSTRAINT answers_stream REFERENCES minutebook.streams (id) ON DELETE CASCADE,
    envelope_id text NOT NULL,
    fingerprint text NOT NULL,
    details jsonb NOT NULL,
    turn text,
    user_seq bigint,
    reply_seq bigint,
    due_at timestamptz,
    created_at timestamptz NOT NULL DEFAULT pg_catalog.clock_timestamp(),
    CONSTRAINT answers_of_message UNIQUE (stream_id, envelope_id)
) WITH (fillfactor = 70);
CREATE INDEX answers_due ON minutebook.answers (due_at) WHERE due_at IS NOT NULL;
CREATE INDEX answers_untaken ON minutebook.answers (created_at) WHERE user_seq IS NULL;

-- recipient: keyed hash of the end that a delivery goes to; NULL where it goes to a channel's own destination.
ALTER TABLE minutebook.deliveries ADD COLUMN recipient text;
CREATE INDEX deliveries_to_recipient ON minutebook.deliveries (recipient) WHERE ended_at IS NULL AND recipient IS NOT NULL;

-- One row a delivery that its recipient did not ask for in that chat, for an hour (../functions/52_take_push_v1.sql).
CREATE TABLE minutebook.pushes (
    delivery_id text CONSTRAINT pushes_pkey PRIMARY KEY,
    tenant text NOT NULL,
    schema_version integer NOT NULL DEFAULT 1,
    recipient text NOT NULL,
    at timestamptz NOT NULL DEFAULT pg_catalog.clock_timestamp()
);
CREATE INDEX pushes_of_recipient ON minutebook.pushes (recipient, at);
CREATE INDEX pushes_at ON minutebook.pushes (at);

INSERT INTO minutebook_jobs.processes (name) VALUES ('answers'), ('unlinks');

GRANT SELECT, INSERT, UPDATE, DELETE ON minutebook.answers TO minutebook_app;
GRANT SELECT (id, tenant, schema_version, stream_id, envelope_id, turn, user_seq, reply_seq, due_at, created_at)
    ON minutebook.answers TO minutebook_auditor;
GRANT SELECT, DELETE ON minutebook.pushes TO minutebook_app;
GRANT SELECT ON minutebook.pushes TO minutebook_auditor;
