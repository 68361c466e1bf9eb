-- Beside the log of conversations: what waits for a runner, whose conversation it is, replies on their way, and ceilings.
SET LOCAL ROLE minutebook_owner;

-- Conversations whose newest envelope may wait for a runner, with its seq. Written in the transaction of the envelope
-- (../functions/32_note_conversation.sql).
CREATE TABLE minutebook.turn_work (
    stream_id bigint CONSTRAINT turn_work_pkey PRIMARY KEY
        CONSTRAINT turn_work_stream REFERENCES minutebook.streams (id) ON DELETE CASCADE,
    seq bigint NOT NULL
) WITH (fillfactor = 50);

-- Whose conversation it is, as its first event says; that event is what counts, and is looked at before it is shown.
-- An empty text stands for what an identity lacks, so that one index finds it.
CREATE TABLE minutebook.conversations (
    stream_id bigint CONSTRAINT conversations_pkey PRIMARY KEY
        CONSTRAINT conversations_stream REFERENCES minutebook.streams (id) ON DELETE CASCADE,
    tenant text NOT NULL,
    actor text NOT NULL,
    on_behalf_of text NOT NULL,
    started_at timestamptz NOT NULL
);
CREATE INDEX conversations_by_owner ON minutebook.conversations (actor, tenant, on_behalf_of, stream_id);

-- How much of a running reply its asker has received; gone once a reply is recorded.
CREATE TABLE minutebook.turn_seen (
    stream_id bigint NOT NULL CONSTRAINT turn_seen_stream REFERENCES minutebook.streams (id) ON DELETE CASCADE,
    turn bigint NOT NULL,
    seen bigint NOT NULL,
    CONSTRAINT turn_seen_pkey PRIMARY KEY (stream_id, turn)
) WITH (fillfactor = 50);

-- What has been generated of replies that are no record yet, for the viewers of other processes. Never part of the log,
-- and worth nothing after a crash of the database, so it is not written twice. No foreign key: it would lock the row of
-- the stream for every batch; what a purge misses goes by its age.
CREATE UNLOGGED TABLE minutebook.deltas (
    stream_id bigint NOT NULL,
    turn bigint NOT NULL,
    attempt integer NOT NULL,
    start bigint NOT NULL,
    text text NOT NULL,
    put_at timestamptz NOT NULL DEFAULT pg_catalog.clock_timestamp(),
    CONSTRAINT deltas_pkey PRIMARY KEY (stream_id, turn, attempt, start)
);

-- Tokens of an asker by day (UTC) and agent: what was used, and what running turns have reserved.
CREATE TABLE minutebook.token_use (
    tenant text NOT NULL,
    actor text NOT NULL,
    on_behalf_of text NOT NULL,
    agent text NOT NULL,
    day date NOT NULL,
    used bigint NOT NULL DEFAULT 0,
    reserved bigint NOT NULL,
    CONSTRAINT token_use_pkey PRIMARY KEY (actor, tenant, on_behalf_of, agent, day)
) WITH (fillfactor = 50);

-- One reservation for each execution of a turn; `used` once it is settled.
CREATE TABLE minutebook.token_reservations (
    execution text CONSTRAINT token_reservations_pkey PRIMARY KEY,
    tenant text NOT NULL,
    actor text NOT NULL,
    on_behalf_of text NOT NULL,
    agent text NOT NULL,
    day date NOT NULL,
    tokens bigint NOT NULL,
    used bigint
);

GRANT SELECT ON minutebook.turn_work, minutebook.conversations, minutebook.turn_seen, minutebook.deltas,
    minutebook.token_use, minutebook.token_reservations TO minutebook_app, minutebook_auditor;

-- Retention deletes what no foreign key takes along, of expired streams alone (../functions/23_purge_v1.sql).
ALTER TABLE minutebook.deltas ENABLE ROW LEVEL SECURITY;
ALTER TABLE minutebook.token_reservations ENABLE ROW LEVEL SECURITY;
CREATE POLICY deltas_read ON minutebook.deltas FOR SELECT TO minutebook_app, minutebook_auditor USING (true);
CREATE POLICY deltas_expired ON minutebook.deltas TO minutebook_retention
    USING (stream_id IN (SELECT s.id FROM minutebook.streams s));
CREATE POLICY reservations_read ON minutebook.token_reservations FOR SELECT
    TO minutebook_app, minutebook_auditor USING (true);
CREATE POLICY reservations_expired ON minutebook.token_reservations TO minutebook_retention
    USING ('turn:' || execution IN (SELECT s.name FROM minutebook.streams s));
GRANT SELECT (stream_id), DELETE ON minutebook.deltas TO minutebook_retention;
GRANT SELECT (execution), DELETE ON minutebook.token_reservations TO minutebook_retention;

-- A message that is sent again gets its first answer for as long as its conversation is there.
DROP POLICY idempotency_expired ON minutebook.idempotency;
CREATE POLICY idempotency_expired ON minutebook.idempotency TO minutebook_retention
    USING (stream_id IN (SELECT s.id FROM minutebook.streams s)
           OR (created_at + interval '30 days' <= pg_catalog.clock_timestamp() AND operation <> 'send_turn'));
GRANT SELECT (operation) ON minutebook.idempotency TO minutebook_retention;
