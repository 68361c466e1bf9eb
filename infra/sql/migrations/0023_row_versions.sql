-- Each row beside the log says in which form it is, also of the tables of deliveries, links and operators.
SET LOCAL ROLE minutebook_owner;

ALTER TABLE minutebook.deliveries ADD COLUMN schema_version integer NOT NULL DEFAULT 1;
ALTER TABLE minutebook.delivery_payloads ADD COLUMN schema_version integer NOT NULL DEFAULT 1;
ALTER TABLE minutebook.delivery_breakers ADD COLUMN schema_version integer NOT NULL DEFAULT 1;
ALTER TABLE minutebook.channel_pauses ADD COLUMN schema_version integer NOT NULL DEFAULT 1;
ALTER TABLE minutebook.channel_paces ADD COLUMN schema_version integer NOT NULL DEFAULT 1;
ALTER TABLE minutebook.link_challenges ADD COLUMN schema_version integer NOT NULL DEFAULT 1;
ALTER TABLE minutebook.linked_identities ADD COLUMN schema_version integer NOT NULL DEFAULT 1;
ALTER TABLE minutebook.link_wrongs ADD COLUMN schema_version integer NOT NULL DEFAULT 1;
ALTER TABLE minutebook.bulk_plans ADD COLUMN schema_version integer NOT NULL DEFAULT 1;
ALTER TABLE minutebook.bulk_items ADD COLUMN schema_version integer NOT NULL DEFAULT 1;

GRANT SELECT (schema_version) ON minutebook.delivery_payloads, minutebook.link_challenges TO minutebook_auditor;
