-- Lets the first one go that is held back within an order, where none before it holds it: one that was due or is being
-- sent, or has waited for less than its window. Where one before it waits all the same, `behind` says which, for the log.
CREATE OR REPLACE FUNCTION minutebook.release_order(p_order text) RETURNS boolean
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    v_next bigint;
BEGIN
    SELECT d.place INTO v_next FROM minutebook.deliveries d
    WHERE d.order_key = p_order AND d.ended_at IS NULL AND d.blocked ORDER BY d.place LIMIT 1;
    IF v_next IS NULL OR EXISTS (
        SELECT FROM minutebook.deliveries e
        WHERE e.order_key = p_order AND e.ended_at IS NULL AND e.place < v_next
          AND (e.order_until > clock_timestamp() OR e.state = 'attempting' OR e.due_at <= clock_timestamp()))
    THEN
        RETURN false;
    END IF;
    UPDATE minutebook.deliveries d SET blocked = false, behind = (
        SELECT e.id FROM minutebook.deliveries e
        WHERE e.order_key = p_order AND e.ended_at IS NULL AND e.place < v_next ORDER BY e.place LIMIT 1)
    WHERE d.order_key = p_order AND d.place = v_next AND d.blocked;
    RETURN FOUND;
END
$$;
ALTER FUNCTION minutebook.release_order(text) OWNER TO minutebook_owner;
REVOKE ALL ON FUNCTION minutebook.release_order(text) FROM PUBLIC;

-- What time alone lets go, and what a plan missed that was appended at the moment at which the one before it ended. Looks at
-- p_limit orders behind p_after; answers the last one looked at, NULL at the end.
CREATE OR REPLACE FUNCTION minutebook.release_orders_v1(p_after text, p_limit integer) RETURNS text
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    v_order text := p_after;
BEGIN
    FOR i IN 1 .. p_limit LOOP
        SELECT d.order_key INTO v_order FROM minutebook.deliveries d
        WHERE d.ended_at IS NULL AND d.blocked AND d.order_key > v_order ORDER BY d.order_key LIMIT 1;
        IF v_order IS NULL THEN
            RETURN NULL;
        END IF;
        PERFORM minutebook.release_order(v_order);
    END LOOP;
    RETURN v_order;
END
$$;
ALTER FUNCTION minutebook.release_orders_v1(text, integer) OWNER TO minutebook_owner;
REVOKE ALL ON FUNCTION minutebook.release_orders_v1(text, integer) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION minutebook.release_orders_v1(text, integer) TO minutebook_app;
