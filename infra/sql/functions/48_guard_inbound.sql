-- A spent proof is kept for 7 days at least, and for 30 days which conversation goes on in a chat, whoever would delete them
-- sooner.
CREATE OR REPLACE FUNCTION minutebook.guard_inbound() RETURNS trigger
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    RAISE EXCEPTION 'it is not old enough' USING ERRCODE = 'insufficient_privilege';
END
$$;
ALTER FUNCTION minutebook.guard_inbound() OWNER TO minutebook_owner;
REVOKE ALL ON FUNCTION minutebook.guard_inbound() FROM PUBLIC;

CREATE OR REPLACE TRIGGER inbound_signatures_guard BEFORE DELETE ON minutebook.inbound_signatures
    FOR EACH ROW WHEN (OLD.seen_at > clock_timestamp() - '7 days'::interval)
    EXECUTE FUNCTION minutebook.guard_inbound();
ALTER TABLE minutebook.inbound_signatures ENABLE ALWAYS TRIGGER inbound_signatures_guard;

CREATE OR REPLACE TRIGGER channel_sessions_guard BEFORE DELETE ON minutebook.channel_sessions
    FOR EACH ROW WHEN (OLD.used_at > clock_timestamp() - '30 days'::interval)
    EXECUTE FUNCTION minutebook.guard_inbound();
ALTER TABLE minutebook.channel_sessions ENABLE ALWAYS TRIGGER channel_sessions_guard;
