-- The hash of an event: SHA-256 over its canonical form, a row of netstrings (docs/explanation/hash-chain.md) that ends
-- with the commitment to the payload and the hash before. infra/chain.py computes the same. One expression, so that the
-- planner puts it in the place of the call.
CREATE OR REPLACE FUNCTION minutebook.event_hash(
    p_stream text, p_seq bigint, p_id text, p_type text, p_schema_version integer, p_actor_kind text, p_actor_id text,
    p_actor_role text, p_run_id text, p_caused_by bigint, p_origin text, p_ts timestamptz, p_redactions text[],
    p_classes text[], p_origin_client text, p_origin_key text, p_commitment bytea, p_prev_hash bytea)
RETURNS bytea
LANGUAGE sql STABLE AS $$
SELECT sha256(convert_to(concat('minutebook.event.v1,',
    octet_length(p_stream), ':', p_stream, ',',
    octet_length(p_seq::text), ':', p_seq, ',',
    octet_length(p_id), ':', p_id, ',',
    octet_length(p_type), ':', p_type, ',',
    octet_length(p_schema_version::text), ':', p_schema_version, ',',
    octet_length(p_actor_kind), ':', p_actor_kind, ',',
    octet_length(p_actor_id), ':', p_actor_id, ',',
    octet_length(p_actor_role), ':', p_actor_role, ',',
    octet_length(p_run_id), ':', p_run_id, ',',
    octet_length(p_caused_by::text), ':', p_caused_by, ',',
    octet_length(p_origin), ':', p_origin, ',',
    '27:', to_char(p_ts AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"'), ',',
    CASE WHEN p_redactions = '{}' THEN '0:,' ELSE minutebook.netstrings(p_redactions) END,
    CASE WHEN p_classes = '{}' THEN '0:,' ELSE minutebook.netstrings(p_classes) END,
    octet_length(p_origin_client), ':', p_origin_client, ',',
    octet_length(p_origin_key), ':', p_origin_key, ',',
    '64:', encode(p_commitment, 'hex'), ',',
    '64:', encode(p_prev_hash, 'hex'), ','), 'UTF8'))
$$;
ALTER FUNCTION minutebook.event_hash(text, bigint, text, text, integer, text, text, text, text, bigint, text,
    timestamptz, text[], text[], text, text, bytea, bytea) OWNER TO minutebook_owner;
REVOKE ALL ON FUNCTION minutebook.event_hash(text, bigint, text, text, integer, text, text, text, text, bigint, text,
    timestamptz, text[], text[], text, text, bytea, bytea) FROM PUBLIC;
