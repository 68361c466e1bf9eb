-- Beside the log of accounts: which codes wait, who is linked where, and who was wrong how often. The first two are written
-- in the transaction of the event (../functions/42_note_account.sql).
SET LOCAL ROLE minutebook_owner;

-- code: keyed hash. Rows go with the challenge; expired ones when their account begins another link.
CREATE TABLE minutebook.link_challenges (
    link_id text CONSTRAINT link_challenges_pkey PRIMARY KEY,
    stream_id bigint NOT NULL CONSTRAINT link_challenges_stream REFERENCES minutebook.streams (id) ON DELETE CASCADE,
    tenant text NOT NULL,
    account text NOT NULL,
    code text NOT NULL,
    expires_at timestamptz NOT NULL,
    CONSTRAINT link_challenges_code UNIQUE (tenant, code)
);
CREATE INDEX link_challenges_pending ON minutebook.link_challenges (tenant, expires_at);
CREATE INDEX link_challenges_of ON minutebook.link_challenges (stream_id);

-- One row an identity that is or was linked: it has at most one account. holder: NULL where it has none now; left_account,
-- free_at: the one that it had, and when another may have it. native: keyed hash.
CREATE TABLE minutebook.linked_identities (
    tenant text NOT NULL,
    channel text NOT NULL,
    native text NOT NULL,
    holder text,
    link_id text NOT NULL,
    left_account text NOT NULL DEFAULT '',
    free_at timestamptz,
    updated_at timestamptz NOT NULL,
    CONSTRAINT linked_identities_pkey PRIMARY KEY (tenant, channel, native)
);
CREATE INDEX linked_identities_holder ON minutebook.linked_identities (tenant, holder) WHERE holder IS NOT NULL;

-- One row an end that showed a code that does not work; until: when that is forgotten.
CREATE TABLE minutebook.link_wrongs (
    tenant text NOT NULL,
    channel text NOT NULL,
    native text NOT NULL,
    count integer NOT NULL,
    until timestamptz NOT NULL,
    CONSTRAINT link_wrongs_pkey PRIMARY KEY (tenant, channel, native)
) WITH (fillfactor = 50);
CREATE INDEX link_wrongs_until ON minutebook.link_wrongs (until);

GRANT SELECT ON minutebook.link_challenges, minutebook.linked_identities, minutebook.link_wrongs TO minutebook_app;
GRANT SELECT (link_id, stream_id, tenant, account, expires_at) ON minutebook.link_challenges TO minutebook_auditor;
GRANT SELECT ON minutebook.linked_identities, minutebook.link_wrongs TO minutebook_auditor;
GRANT INSERT, UPDATE, DELETE ON minutebook.link_wrongs TO minutebook_app;
