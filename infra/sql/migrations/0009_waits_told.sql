-- Of which wait for a human the outside was told last, room by room, so that each is told of once.
SET LOCAL ROLE minutebook_owner;

CREATE TABLE minutebook.waits_told (
    stream_id bigint NOT NULL CONSTRAINT waits_told_pkey PRIMARY KEY
        CONSTRAINT waits_told_stream REFERENCES minutebook.streams (id) ON DELETE CASCADE,
    run_id text NOT NULL,
    seq bigint NOT NULL,
    told_at timestamptz NOT NULL
) WITH (fillfactor = 50);

GRANT SELECT, INSERT, UPDATE ON minutebook.waits_told TO minutebook_app;
GRANT SELECT ON minutebook.waits_told TO minutebook_auditor;
