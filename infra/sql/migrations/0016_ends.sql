-- Ends of channels that have spoken: the one place with the ids that platforms know them by. And what may be sent to a linked
-- end, beside whose it is.
SET LOCAL ROLE minutebook_owner;

ALTER TABLE minutebook.linked_identities ADD COLUMN push text NOT NULL DEFAULT 'replies';
ALTER TABLE minutebook.linked_identities ALTER COLUMN push DROP DEFAULT;
UPDATE minutebook.linked_identities i SET push = e.payload ->> 'push'
FROM minutebook.streams s JOIN minutebook.events e ON e.stream_id = s.id
WHERE s.tenant = i.tenant AND s.name = 'account:' || i.holder
  AND e.type IN ('link_confirmed', 'push_changed') AND e.payload ->> 'linkId' = i.link_id
  AND NOT EXISTS (
    SELECT FROM minutebook.events l
    WHERE l.stream_id = e.stream_id AND l.seq > e.seq AND l.type = 'push_changed' AND l.payload ->> 'linkId' = i.link_id);
CREATE INDEX linked_identities_left ON minutebook.linked_identities (updated_at) WHERE holder IS NULL;

-- One row an end. native: keyed hash of native_id. own_key: the isolation key that it has while it is linked to nobody.
-- chat, thread: the private chat in which it spoke last; empty where the channel has none. spoke_at: of its newest message
-- there; seen_at: of anything that it did. muted: it wants nothing as an end of its own; a linked one has its push.
CREATE TABLE minutebook.ends (
    tenant text NOT NULL,
    channel text NOT NULL,
    native text NOT NULL,
    own_key text NOT NULL,
    native_id text NOT NULL,
    chat text NOT NULL DEFAULT '',
    thread text,
    display text NOT NULL,
    spoke_at timestamptz NOT NULL,
    seen_at timestamptz NOT NULL DEFAULT pg_catalog.clock_timestamp(),
    muted boolean NOT NULL DEFAULT false,
    schema_version integer NOT NULL DEFAULT 1,
    CONSTRAINT ends_pkey PRIMARY KEY (tenant, channel, native)
) WITH (fillfactor = 80);
CREATE INDEX ends_own_key ON minutebook.ends (tenant, own_key);
CREATE INDEX ends_seen ON minutebook.ends USING brin (seen_at);

GRANT SELECT, INSERT, UPDATE ON minutebook.ends TO minutebook_app;
GRANT SELECT (tenant, channel, native, own_key, spoke_at, seen_at, muted, schema_version) ON minutebook.ends
    TO minutebook_auditor;
