-- Messages that their senders deleted on the platform: which deletion is of which message, and whose turns are to be erased.
SET LOCAL ROLE minutebook_owner;

-- Of a deletion the message that is gone, which may not have come yet.
ALTER TABLE minutebook.inbound_messages ADD COLUMN deletes text;
CREATE INDEX inbound_messages_deleted ON minutebook.inbound_messages (deletes) WHERE deletes IS NOT NULL;

-- One row a turn that is to be erased. id: of the message; message_id: that of its turn. Only the eraser takes one away: once
-- the turn is erased, or nothing is there any more.
CREATE TABLE minutebook.inbound_deletions (
    id text NOT NULL,
    conversation_id text NOT NULL,
    message_id text NOT NULL,
    tenant text NOT NULL,
    channel text NOT NULL,
    schema_version integer NOT NULL DEFAULT 1,
    at timestamptz NOT NULL DEFAULT pg_catalog.clock_timestamp(),
    CONSTRAINT inbound_deletions_pkey PRIMARY KEY (id, conversation_id)
);
CREATE INDEX inbound_deletions_turn ON minutebook.inbound_deletions (message_id);

GRANT SELECT ON minutebook.inbound_deletions TO minutebook_app, minutebook_eraser, minutebook_auditor;
GRANT INSERT ON minutebook.inbound_deletions TO minutebook_app;
GRANT DELETE ON minutebook.inbound_deletions TO minutebook_eraser;
