-- Whether one more push may go to a recipient this hour. The same delivery again takes nothing, and is answered as it was.
-- One recipient's are counted one after another, so that many senders at once take no more than there is.
CREATE OR REPLACE FUNCTION minutebook.take_push_v1(p_delivery text, p_tenant text, p_recipient text, p_most integer)
RETURNS boolean
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    v_recent integer;
BEGIN
    PERFORM pg_advisory_xact_lock(hashtextextended(p_recipient, 51));
    IF EXISTS (SELECT FROM minutebook.pushes p WHERE p.delivery_id = p_delivery) THEN
        RETURN true;
    END IF;
    SELECT count(*) INTO v_recent FROM (SELECT FROM minutebook.pushes p WHERE p.recipient = p_recipient
        AND p.at > clock_timestamp() - interval '1 hour' LIMIT p_most) r;
    IF v_recent >= p_most THEN
        RETURN false;
    END IF;
    INSERT INTO minutebook.pushes (delivery_id, tenant, recipient) VALUES (p_delivery, p_tenant, p_recipient);
    RETURN true;
END
$$;
ALTER FUNCTION minutebook.take_push_v1(text, text, text, integer) OWNER TO minutebook_owner;
REVOKE ALL ON FUNCTION minutebook.take_push_v1(text, text, text, integer) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION minutebook.take_push_v1(text, text, text, integer) TO minutebook_app;
