-- This server's own inbox: what channels of kind web push to. What counts of a delivery is its stream; here lie its words for
-- as long as they may be read.
SET LOCAL ROLE minutebook_owner;

-- One row a recipient, a principal as text. id: what wake-ups carry. last: the newest place given; it begins at the time in
-- milliseconds, so that no place is given twice although a row that is not used goes.
CREATE TABLE minutebook.inbox_heads (
    id bigint GENERATED ALWAYS AS IDENTITY CONSTRAINT inbox_heads_pkey PRIMARY KEY,
    schema_version integer NOT NULL DEFAULT 1,
    tenant text NOT NULL,
    recipient text NOT NULL,
    last bigint NOT NULL,
    used_at timestamptz NOT NULL DEFAULT pg_catalog.clock_timestamp(),
    CONSTRAINT inbox_heads_recipient UNIQUE (tenant, recipient)
) WITH (fillfactor = 50);
CREATE INDEX inbox_heads_used ON minutebook.inbox_heads (used_at);

-- One row a part. key: of the part, `<delivery id>.<n>`. cursor: in the order of the commits of its recipient's rows; one that
-- is revoked moves to a new place, without its words. body, wrapped: as payloads of deliveries are kept. stream_id: of its
-- conversation, whose end takes it along.
CREATE TABLE minutebook.inbox_items (
    key text CONSTRAINT inbox_items_pkey PRIMARY KEY,
    schema_version integer NOT NULL DEFAULT 1,
    tenant text NOT NULL,
    head bigint NOT NULL CONSTRAINT inbox_items_head REFERENCES minutebook.inbox_heads (id),
    cursor bigint NOT NULL,
    channel text NOT NULL,
    delivery_id text NOT NULL,
    part integer NOT NULL,
    stream_id bigint CONSTRAINT inbox_items_stream REFERENCES minutebook.streams (id) ON DELETE CASCADE,
    conversation_id text,
    turn bigint,
    codec text NOT NULL,
    codec_version integer NOT NULL,
    body bytea,
    wrapped bytea,
    created_at timestamptz NOT NULL DEFAULT pg_catalog.clock_timestamp(),
    delivered_at timestamptz,
    observed_at timestamptz,
    revoked_at timestamptz,
    expires_at timestamptz NOT NULL,
    CONSTRAINT inbox_items_place UNIQUE (head, cursor)
) WITH (fillfactor = 80);
CREATE INDEX inbox_items_of_delivery ON minutebook.inbox_items (delivery_id);
CREATE INDEX inbox_items_of_turn ON minutebook.inbox_items (stream_id, turn) WHERE stream_id IS NOT NULL;
CREATE INDEX inbox_items_expire ON minutebook.inbox_items (expires_at);

GRANT SELECT ON minutebook.inbox_heads, minutebook.inbox_items TO minutebook_app;
GRANT UPDATE (delivered_at, observed_at) ON minutebook.inbox_items TO minutebook_app;
GRANT SELECT (id, schema_version, tenant, last, used_at) ON minutebook.inbox_heads TO minutebook_auditor;
GRANT SELECT (key, schema_version, tenant, head, cursor, channel, delivery_id, part, stream_id, turn, created_at, delivered_at,
    observed_at, revoked_at, expires_at) ON minutebook.inbox_items TO minutebook_auditor;
