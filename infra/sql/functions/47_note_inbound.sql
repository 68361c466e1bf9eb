-- Writes the row of a message beside the log, in the transaction of the event that says what it came to. The key is the
-- stream's own name, so that no writer can take the place of another message.
CREATE OR REPLACE FUNCTION minutebook.note_inbound() RETURNS trigger
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    p jsonb := NEW.payload;
    v_name text;
    v_tenant text;
BEGIN
    SELECT s.name, s.tenant INTO v_name, v_tenant FROM minutebook.streams s
    WHERE s.id = NEW.stream_id AND s.kind = 'inbound';
    IF NOT FOUND OR NEW.seq <> 1 THEN
        RETURN NULL;
    END IF;
    INSERT INTO minutebook.inbound_messages (id, stream_id, tenant, channel, outcome, conversation_id, correlation_id,
        decided_at, deletes)
    VALUES (substr(v_name, length('inbound:') + 1), NEW.stream_id, v_tenant, p ->> 'channel', p ->> 'outcome',
        p ->> 'conversation', p ->> 'correlationId', NEW.ts, p ->> 'deletes');
    RETURN NULL;
END
$$;
ALTER FUNCTION minutebook.note_inbound() OWNER TO minutebook_owner;
REVOKE ALL ON FUNCTION minutebook.note_inbound() FROM PUBLIC;

-- For each row on purpose: the condition is looked at without a call, so that other events pay next to nothing.
CREATE OR REPLACE TRIGGER events_note_inbound AFTER INSERT ON minutebook.events
    FOR EACH ROW WHEN (NEW.type = 'inbound_decided'::text) EXECUTE FUNCTION minutebook.note_inbound();
ALTER TABLE minutebook.events ENABLE ALWAYS TRIGGER events_note_inbound;
