-- Writes what a record of a conversation means for the handle of a background turn, in the transaction of the record: which
-- turn it became, and its end. The first end stays, whoever finds it. What is answered is read from the record, with the keys.
CREATE OR REPLACE FUNCTION minutebook.note_continuation() RETURNS trigger
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    p jsonb := NEW.payload;
BEGIN
    IF NEW.type = 'reply_recorded' THEN
        UPDATE minutebook.continuations c SET record_ord = (p ->> 'ord')::bigint, ended_at = NEW.ts,
            expires_at = NEW.ts + make_interval(secs => c.ttl_s), reason = coalesce(p ->> 'reason', ''),
            status = CASE p ->> 'status' WHEN 'completed' THEN 'completed' WHEN 'interrupted' THEN 'cancelled' ELSE 'failed' END
        WHERE c.stream_id = NEW.stream_id AND c.status IS NULL AND to_jsonb(c.turn) = p -> 'turn';
    ELSIF p ->> 'status' = 'accepted' THEN
        UPDATE minutebook.continuations c SET turn = (p ->> 'turn')::bigint
        WHERE c.stream_id = NEW.stream_id AND c.envelope_id = p ->> 'id' AND c.status IS NULL;
    ELSE
        UPDATE minutebook.continuations c SET record_ord = (p ->> 'ord')::bigint, ended_at = NEW.ts, status = 'failed',
            expires_at = NEW.ts + make_interval(secs => c.ttl_s), reason = coalesce(p ->> 'reason', '')
        WHERE c.stream_id = NEW.stream_id AND c.envelope_id = p ->> 'id' AND c.status IS NULL;
    END IF;
    RETURN NULL;
END
$$;
ALTER FUNCTION minutebook.note_continuation() OWNER TO minutebook_owner;
REVOKE ALL ON FUNCTION minutebook.note_continuation() FROM PUBLIC;

-- For each row on purpose: the condition is looked at without a call, so that other events pay next to nothing.
CREATE OR REPLACE TRIGGER events_note_continuation AFTER INSERT ON minutebook.events
    FOR EACH ROW
    WHEN (NEW.type = ANY (ARRAY['user_recorded'::text, 'reply_recorded'::text]))
    EXECUTE FUNCTION minutebook.note_continuation();
ALTER TABLE minutebook.events ENABLE ALWAYS TRIGGER events_note_continuation;
