-- The hash of an event: SHA-256 over its canonical form, a row of netstrings (docs/explanation/hash-chain.md) that ends
-- with the commitment to the payload and the hash before. infra/chain.py computes the same. One expression each, so that
-- the planner puts it in the place of the call.
--
-- event_words is that form up to the octets of the hash before, which alone depends on the event's predecessor.
CREATE OR REPLACE FUNCTION minutebook.event_words(
    p_stream text, p_seq bigint, p_id text, p_type text, p_schema_version integer, p_actor_kind text, p_actor_id text,
    p_actor_role text, p_run_id text, p_caused_by bigint, p_origin text, p_ts timestamptz, p_redactions text[],
    p_classes text[], p_origin_client text, p_origin_key text, p_commitment bytea)
RETURNS text
LANGUAGE sql STABLE AS $$
SELECT concat('minutebook.event.v1,',
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
    '64:', encode(p_commitment, 'hex'), ',64:')
$$;
ALTER FUNCTION minutebook.event_words(text, bigint, text, text, integer, text, text, text, text, bigint, text,
    timestamptz, text[], text[], text, text, bytea) OWNER TO minutebook_owner;
REVOKE ALL ON FUNCTION minutebook.event_words(text, bigint, text, text, integer, text, text, text, text, bigint, text,
    timestamptz, text[], text[], text, text, bytea) FROM PUBLIC;

CREATE OR REPLACE FUNCTION minutebook.event_hash(
    p_stream text, p_seq bigint, p_id text, p_type text, p_schema_version integer, p_actor_kind text, p_actor_id text,
    p_actor_role text, p_run_id text, p_caused_by bigint, p_origin text, p_ts timestamptz, p_redactions text[],
    p_classes text[], p_origin_client text, p_origin_key text, p_commitment bytea, p_prev_hash bytea)
RETURNS bytea
LANGUAGE sql STABLE AS $$
SELECT sha256(convert_to(minutebook.event_words(p_stream, p_seq, p_id, p_type, p_schema_version, p_actor_kind,
    p_actor_id, p_actor_role, p_run_id, p_caused_by, p_origin, p_ts, p_redactions, p_classes, p_origin_client,
    p_origin_key, p_commitment) || encode(p_prev_hash, 'hex') || ',', 'UTF8'))
$$;
ALTER FUNCTION minutebook.event_hash(text, bigint, text, text, integer, text, text, text, text, bigint, text,
    timestamptz, text[], text[], text, text, bytea, bytea) OWNER TO minutebook_owner;
REVOKE ALL ON FUNCTION minutebook.event_hash(text, bigint, text, text, integer, text, text, text, text, bigint, text,
    timestamptz, text[], text[], text, text, bytea, bytea) FROM PUBLIC;

-- Hashes of events that follow each other, as a window in the order of the rows:
--   event_chain(words, head, k) OVER (ROWS UNBOUNDED PRECEDING)
-- Each value is 64 octets: the hash before, and the hash. Where k is 1 a stream begins, and `head` is the hash before.
CREATE OR REPLACE FUNCTION minutebook.event_chain_next(p_link bytea, p_words text, p_head bytea, p_k integer) RETURNS bytea
LANGUAGE plpgsql IMMUTABLE PARALLEL SAFE AS $$
DECLARE
    v_before bytea := CASE WHEN p_k = 1 THEN p_head ELSE substr(p_link, 33) END;
BEGIN
    RETURN v_before || sha256(convert_to(p_words || encode(v_before, 'hex') || ',', 'UTF8'));
END
$$;
ALTER FUNCTION minutebook.event_chain_next(bytea, text, bytea, integer) OWNER TO minutebook_owner;
REVOKE ALL ON FUNCTION minutebook.event_chain_next(bytea, text, bytea, integer) FROM PUBLIC;

CREATE OR REPLACE AGGREGATE minutebook.event_chain(text, bytea, integer) (
    SFUNC = minutebook.event_chain_next, STYPE = bytea, PARALLEL = SAFE);
ALTER AGGREGATE minutebook.event_chain(text, bytea, integer) OWNER TO minutebook_owner;
REVOKE ALL ON FUNCTION minutebook.event_chain(text, bytea, integer) FROM PUBLIC;
