-- The short path of append_v1 for many new streams at once: one or more events each, without key, fence or seal. What is
-- decided, checked and stored is the same. Parameters and answer as of append_plain_v1, with what each stream is made of beside
-- its name; NULL, and nothing is stored, where a name is taken. Whoever takes one at the same moment makes this call fail
-- with 23505, as append_v1 may.
CREATE OR REPLACE FUNCTION minutebook.append_new_v1(
    p_streams text[], p_kinds text[], p_tenants text[], p_retention integer[], p_count integer, p_events json,
    p_notify boolean DEFAULT true)
RETURNS text
LANGUAGE plpgsql SECURITY DEFINER
    SET search_path = pg_catalog, pg_temp
    SET plan_cache_mode = force_generic_plan
    SET enable_seqscan = off
    SET enable_bitmapscan = off
AS $$
DECLARE
    v_stored text;
BEGIN
    IF EXISTS (SELECT FROM minutebook.streams s WHERE s.name = ANY (p_streams)) THEN
        RETURN NULL;
    END IF;
    -- In the order of the names, as append_v1 does: two callers never wait for each other.
    INSERT INTO minutebook.streams (name, kind, tenant, retention_days)
    SELECT n.name, n.kind, n.tenant, n.retention
    FROM unnest(p_streams, p_kinds, p_tenants, p_retention) AS n (name, kind, tenant, retention) ORDER BY 1;
    v_stored := minutebook.append_plain_v1(p_streams, array_fill(0::bigint, ARRAY[cardinality(p_streams)]), p_count, p_events,
        p_notify);
    IF v_stored IS NULL THEN
        RAISE EXCEPTION 'new streams have events already' USING ERRCODE = 'MB003';
    END IF;
    RETURN v_stored;
END
$$;
ALTER FUNCTION minutebook.append_new_v1(text[], text[], text[], integer[], integer, json, boolean) OWNER TO minutebook_owner;
REVOKE ALL ON FUNCTION minutebook.append_new_v1(text[], text[], text[], integer[], integer, json, boolean) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION minutebook.append_new_v1(text[], text[], text[], integer[], integer, json, boolean)
    TO minutebook_app;
