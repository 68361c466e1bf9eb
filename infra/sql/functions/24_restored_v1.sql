-- After a restore from a backup: the log may lack what readers saw of it, so it gets a name of its own, and every cursor
-- of the old one is answered with `reset`. What waits for the audit feed carries transaction ids of the cluster that was
-- backed up; here they mean nothing, and all of it is past doubt. For the owner alone, with no server running.
CREATE OR REPLACE FUNCTION minutebook.restored_v1() RETURNS text
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    v_log_id text;
BEGIN
    PERFORM pg_advisory_xact_lock(7215002);  -- no advance of the feed meanwhile
    LOCK TABLE minutebook.events IN SHARE ROW EXCLUSIVE MODE;  -- and no append
    UPDATE minutebook.feed_queue SET txid = '0';
    UPDATE minutebook.log SET log_id = replace(gen_random_uuid()::text, '-', '') RETURNING log_id INTO STRICT v_log_id;
    RETURN v_log_id;
END
$$;
ALTER FUNCTION minutebook.restored_v1() OWNER TO minutebook_owner;
REVOKE ALL ON FUNCTION minutebook.restored_v1() FROM PUBLIC;
