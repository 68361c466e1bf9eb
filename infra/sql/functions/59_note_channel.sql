-- Writes what stops a channel, or lets it go on, beside the log in the transaction of the event: what senders ask before they
-- send.
CREATE OR REPLACE FUNCTION minutebook.note_channel() RETURNS trigger
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    p jsonb := NEW.payload;
    v_tenant text;
BEGIN
    SELECT s.tenant INTO v_tenant FROM minutebook.streams s WHERE s.id = NEW.stream_id AND s.kind = 'channel';
    IF NOT FOUND THEN
        RETURN NULL;
    END IF;
    IF NEW.type = 'channel_resumed' THEN
        DELETE FROM minutebook.channel_pauses c WHERE c.tenant = v_tenant AND c.channel = p ->> 'channel';
        RETURN NULL;
    END IF;
    INSERT INTO minutebook.channel_pauses AS c (tenant, channel, reason, actor, paused_at, until)
    VALUES (v_tenant, p ->> 'channel', p ->> 'reason', NEW.actor_kind || ':' || NEW.actor_id, NEW.ts,
        (p ->> 'until')::timestamptz)
    ON CONFLICT ON CONSTRAINT channel_pauses_pkey DO UPDATE SET
        reason = EXCLUDED.reason, actor = EXCLUDED.actor, paused_at = EXCLUDED.paused_at, until = EXCLUDED.until;
    RETURN NULL;
END
$$;
ALTER FUNCTION minutebook.note_channel() OWNER TO minutebook_owner;
REVOKE ALL ON FUNCTION minutebook.note_channel() FROM PUBLIC;

-- For each row on purpose: the condition is looked at without a call, so that other events pay next to nothing.
CREATE OR REPLACE TRIGGER events_note_channel AFTER INSERT ON minutebook.events
    FOR EACH ROW
    WHEN (NEW.type = ANY (ARRAY['channel_paused'::text, 'channel_resumed'::text]))
    EXECUTE FUNCTION minutebook.note_channel();
ALTER TABLE minutebook.events ENABLE ALWAYS TRIGGER events_note_channel;
