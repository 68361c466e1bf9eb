DROP FUNCTION IF EXISTS minutebook.forget_ends_v1(integer);

-- Takes what linking keeps no longer, p_limit rows of each at most: ends that belong to nobody and have nobody p_ends_s after
-- they were seen last; that an end was unlinked, p_tombstones_s after; wrong codes that are forgotten; codes that expired a
-- day ago. Both times are in seconds, a day at least. Answers how many of each went.
CREATE OR REPLACE FUNCTION minutebook.forget_ends_v2(
    p_limit integer, p_ends_s double precision, p_tombstones_s double precision,
    OUT ends bigint, OUT tombstones bigint, OUT wrongs bigint, OUT challenges bigint)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    v_old timestamptz := clock_timestamp() - make_interval(secs => greatest(p_ends_s, 86400));
    v_left timestamptz := clock_timestamp() - make_interval(secs => greatest(p_tombstones_s, 86400));
BEGIN
    DELETE FROM minutebook.ends d WHERE (d.tenant, d.channel, d.native) IN (
        SELECT e.tenant, e.channel, e.native FROM minutebook.ends e
        WHERE e.seen_at <= v_old AND NOT EXISTS (
            SELECT FROM minutebook.linked_identities i
            WHERE i.tenant = e.tenant AND i.holder IS NOT NULL
              AND ((i.channel = e.channel AND i.native = e.native) OR i.holder = e.own_key))
        LIMIT p_limit)
      AND d.seen_at <= v_old;
    GET DIAGNOSTICS ends = ROW_COUNT;
    DELETE FROM minutebook.linked_identities d WHERE (d.tenant, d.channel, d.native) IN (
        SELECT i.tenant, i.channel, i.native FROM minutebook.linked_identities i
        WHERE i.holder IS NULL AND i.updated_at <= v_left AND i.free_at <= clock_timestamp() LIMIT p_limit)
      AND d.holder IS NULL AND d.updated_at <= v_left;
    GET DIAGNOSTICS tombstones = ROW_COUNT;
    DELETE FROM minutebook.link_wrongs d WHERE (d.tenant, d.channel, d.native) IN (
        SELECT w.tenant, w.channel, w.native FROM minutebook.link_wrongs w WHERE w.until <= clock_timestamp() LIMIT p_limit)
      AND d.until <= clock_timestamp();
    GET DIAGNOSTICS wrongs = ROW_COUNT;
    DELETE FROM minutebook.link_challenges d WHERE d.link_id IN (
        SELECT c.link_id FROM minutebook.link_challenges c
        WHERE c.expires_at <= clock_timestamp() - interval '1 day' LIMIT p_limit);
    GET DIAGNOSTICS challenges = ROW_COUNT;
END
$$;
ALTER FUNCTION minutebook.forget_ends_v2(integer, double precision, double precision) OWNER TO minutebook_owner;
REVOKE ALL ON FUNCTION minutebook.forget_ends_v2(integer, double precision, double precision) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION minutebook.forget_ends_v2(integer, double precision, double precision) TO minutebook_app;
