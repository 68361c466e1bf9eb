-- The ceiling of an asker's tokens by day (UTC) and agent. Both functions lock the reservation first and the day's row
-- second, so that they never wait for each other.
--
-- token_reserve_v1 reserves for a turn's execution, or answers false where the ceiling would be passed: the row of the day
-- is locked while it is compared, so that no two reservations pass it together. The same execution again changes nothing
-- and is true. p_ceiling NULL: none, and the use is counted all the same.
CREATE OR REPLACE FUNCTION minutebook.token_reserve_v1(
    p_execution text, p_tenant text, p_actor text, p_on_behalf_of text, p_agent text, p_tokens bigint, p_ceiling bigint)
RETURNS boolean
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    v_day date := (clock_timestamp() AT TIME ZONE 'UTC')::date;
BEGIN
    IF (p_tokens >= 0) IS NOT TRUE THEN
        RAISE EXCEPTION 'a reservation is of tokens, not %', p_tokens USING ERRCODE = '22023';
    END IF;
    INSERT INTO minutebook.token_reservations (execution, tenant, actor, on_behalf_of, agent, day, tokens)
    VALUES (p_execution, p_tenant, p_actor, p_on_behalf_of, p_agent, v_day, p_tokens)
    ON CONFLICT DO NOTHING;
    IF NOT FOUND THEN
        RETURN true;
    END IF;
    INSERT INTO minutebook.token_use AS u (tenant, actor, on_behalf_of, agent, day, reserved)
    SELECT p_tenant, p_actor, p_on_behalf_of, p_agent, v_day, p_tokens WHERE p_ceiling IS NULL OR p_tokens <= p_ceiling
    ON CONFLICT ON CONSTRAINT token_use_pkey DO UPDATE SET reserved = u.reserved + EXCLUDED.reserved
        WHERE p_ceiling IS NULL OR u.used + u.reserved + EXCLUDED.reserved <= p_ceiling;
    IF NOT FOUND THEN
        DELETE FROM minutebook.token_reservations r WHERE r.execution = p_execution;
        RETURN false;
    END IF;
    RETURN true;
END
$$;
ALTER FUNCTION minutebook.token_reserve_v1(text, text, text, text, text, bigint, bigint) OWNER TO minutebook_owner;
REVOKE ALL ON FUNCTION minutebook.token_reserve_v1(text, text, text, text, text, bigint, bigint) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION minutebook.token_reserve_v1(text, text, text, text, text, bigint, bigint) TO minutebook_app;

-- Replaces a reservation by what was used, once; answers whether it was this call. Of an execution that has none, nothing.
CREATE OR REPLACE FUNCTION minutebook.token_settle_v1(p_execution text, p_used bigint) RETURNS boolean
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    r minutebook.token_reservations;
BEGIN
    IF (p_used >= 0) IS NOT TRUE THEN
        RAISE EXCEPTION 'tokens were used, not %', p_used USING ERRCODE = '22023';
    END IF;
    UPDATE minutebook.token_reservations t SET used = p_used
    WHERE t.execution = p_execution AND t.used IS NULL RETURNING t.* INTO r;
    IF NOT FOUND THEN
        RETURN false;
    END IF;
    UPDATE minutebook.token_use u SET used = u.used + p_used, reserved = u.reserved - r.tokens
    WHERE u.actor = r.actor AND u.tenant = r.tenant AND u.on_behalf_of = r.on_behalf_of AND u.agent = r.agent
      AND u.day = r.day;
    RETURN true;
END
$$;
ALTER FUNCTION minutebook.token_settle_v1(text, bigint) OWNER TO minutebook_owner;
REVOKE ALL ON FUNCTION minutebook.token_settle_v1(text, bigint) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION minutebook.token_settle_v1(text, bigint) TO minutebook_app;

-- Days that are more than a week past: nothing is reserved of them any more. Answers how many rows.
CREATE OR REPLACE FUNCTION minutebook.tokens_expire_v1() RETURNS bigint
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    v_day date := (clock_timestamp() AT TIME ZONE 'UTC')::date - 7;
    v_gone bigint;
BEGIN
    WITH reservations AS (DELETE FROM minutebook.token_reservations r WHERE r.day < v_day RETURNING 1),
        days AS (DELETE FROM minutebook.token_use u WHERE u.day < v_day RETURNING 1)
    SELECT (SELECT count(*) FROM reservations) + (SELECT count(*) FROM days) INTO v_gone;
    RETURN v_gone;
END
$$;
ALTER FUNCTION minutebook.tokens_expire_v1() OWNER TO minutebook_owner;
REVOKE ALL ON FUNCTION minutebook.tokens_expire_v1() FROM PUBLIC;
GRANT EXECUTE ON FUNCTION minutebook.tokens_expire_v1() TO minutebook_app;
