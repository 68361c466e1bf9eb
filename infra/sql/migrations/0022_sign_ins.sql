-- Sign-ins at identity providers that link a channel, and what they said of a person. Both are deleted by their age.
SET LOCAL ROLE minutebook_owner;

-- One row a sign-in under way. hash: of what the browser carries, which is in no row. verified: who has signed in, NULL until
-- the provider has sent them back; then the row waits, under another hash, for their word that they want the link.
CREATE TABLE minutebook.link_sign_ins (
    hash text CONSTRAINT link_sign_ins_pkey PRIMARY KEY,
    tenant text NOT NULL,
    link_id text NOT NULL,
    issuer text NOT NULL,
    verified jsonb,
    expires_at timestamptz NOT NULL,
    schema_version integer NOT NULL DEFAULT 1
);
CREATE INDEX link_sign_ins_link ON minutebook.link_sign_ins (link_id);
CREATE INDEX link_sign_ins_expires ON minutebook.link_sign_ins (expires_at);

-- One row an account: its newest sign-in. claims: those that the settings name.
CREATE TABLE minutebook.claim_snapshots (
    tenant text NOT NULL,
    account text NOT NULL,
    issuer text NOT NULL,
    sub text NOT NULL,
    claims jsonb NOT NULL,
    taken_at timestamptz NOT NULL,
    expires_at timestamptz NOT NULL,
    schema_version integer NOT NULL DEFAULT 1,
    CONSTRAINT claim_snapshots_pkey PRIMARY KEY (tenant, account)
);
CREATE INDEX claim_snapshots_expires ON minutebook.claim_snapshots (expires_at);

GRANT SELECT, INSERT, DELETE ON minutebook.link_sign_ins TO minutebook_app;
GRANT SELECT, INSERT, UPDATE, DELETE ON minutebook.claim_snapshots TO minutebook_app;
GRANT SELECT (tenant, link_id, issuer, expires_at, schema_version) ON minutebook.link_sign_ins TO minutebook_auditor;
GRANT SELECT (tenant, account, issuer, taken_at, expires_at, schema_version) ON minutebook.claim_snapshots
    TO minutebook_auditor;
