-- Channels are stopped and let go by events, and bulk plans of operators have their rows; both are written in the
-- transaction of the event (../functions/59_note_channel.sql, ../functions/60_note_bulk.sql).
SET LOCAL ROLE minutebook_owner;

-- Until now nothing but a test wrote to it.
DELETE FROM minutebook.channel_pauses;
ALTER TABLE minutebook.channel_pauses DROP CONSTRAINT channel_pauses_pkey;
ALTER TABLE minutebook.channel_pauses ADD COLUMN tenant text NOT NULL;
ALTER TABLE minutebook.channel_pauses ADD CONSTRAINT channel_pauses_pkey PRIMARY KEY (tenant, channel);
REVOKE INSERT, UPDATE, DELETE ON minutebook.channel_pauses FROM minutebook_app;

-- holder, lease_until: the process that works on it, and until when nobody else does.
CREATE TABLE minutebook.bulk_plans (
    plan_id text CONSTRAINT bulk_plans_pkey PRIMARY KEY,
    stream_id bigint NOT NULL CONSTRAINT bulk_plans_stream REFERENCES minutebook.streams (id) ON DELETE CASCADE,
    tenant text NOT NULL,
    state text NOT NULL CONSTRAINT bulk_plans_state_known CHECK (state IN ('planned', 'running', 'stopped', 'done',
        'expired')),
    expires_at timestamptz NOT NULL,
    holder text,
    lease_until timestamptz,
    updated_at timestamptz NOT NULL
);
CREATE INDEX bulk_plans_open ON minutebook.bulk_plans (state, expires_at) WHERE state IN ('planned', 'running');

-- What a plan is about: deliveries as they stood then, by their version. state left: to be done.
CREATE TABLE minutebook.bulk_items (
    plan_id text NOT NULL,
    place integer NOT NULL,
    tenant text NOT NULL,
    delivery_id text NOT NULL,
    delivery_stream bigint NOT NULL,
    version bigint NOT NULL,
    class text NOT NULL,
    state text NOT NULL CONSTRAINT bulk_items_state_known CHECK (state IN ('left', 'done', 'skipped', 'failed')),
    reason text NOT NULL DEFAULT '',
    created_at timestamptz NOT NULL DEFAULT pg_catalog.clock_timestamp(),
    CONSTRAINT bulk_items_pkey PRIMARY KEY (plan_id, place)
) WITH (fillfactor = 80);
CREATE INDEX bulk_items_left ON minutebook.bulk_items (plan_id, place) WHERE state = 'left';
CREATE INDEX bulk_items_created ON minutebook.bulk_items USING brin (created_at);

-- What operators change at once, and what belongs to a channel that no setting names any more.
CREATE INDEX deliveries_open_by_channel ON minutebook.deliveries (channel, stream_id) WHERE ended_at IS NULL;

GRANT SELECT ON minutebook.bulk_plans, minutebook.bulk_items TO minutebook_app, minutebook_auditor;
GRANT UPDATE (holder, lease_until) ON minutebook.bulk_plans TO minutebook_app;
GRANT INSERT, DELETE, UPDATE (state, reason) ON minutebook.bulk_items TO minutebook_app;
