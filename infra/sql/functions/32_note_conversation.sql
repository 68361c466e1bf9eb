-- Writes what an event of a conversation means beside the log, in the transaction of the event: whose it is, that
-- something waits for a runner, that nothing needs to be known of a reply's way any more. What a fork copies means nothing
-- here. The runner acts on what it can verify alone, so that a forged event costs a look at the log and no more.
CREATE OR REPLACE FUNCTION minutebook.note_conversation() RETURNS trigger
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    v_owner jsonb := NEW.payload -> 'owner';
BEGIN
    IF coalesce(current_setting('minutebook.fork_source', true), '') <> ''
        OR NOT EXISTS (SELECT FROM minutebook.streams s WHERE s.id = NEW.stream_id AND s.kind = 'conversation')
    THEN
        RETURN NULL;
    ELSIF NEW.type = 'envelope_received' THEN
        INSERT INTO minutebook.turn_work AS w (stream_id, seq) VALUES (NEW.stream_id, NEW.seq)
        ON CONFLICT ON CONSTRAINT turn_work_pkey DO UPDATE SET seq = EXCLUDED.seq;
    ELSIF NEW.type = 'reply_recorded' THEN
        DELETE FROM minutebook.turn_seen t
        WHERE t.stream_id = NEW.stream_id AND to_jsonb(t.turn) <= NEW.payload -> 'turn';
    ELSIF NEW.seq = 1 AND v_owner ->> 'actor' IS NOT NULL THEN
        INSERT INTO minutebook.conversations (stream_id, tenant, actor, on_behalf_of, started_at)
        VALUES (NEW.stream_id, coalesce(v_owner ->> 'tenant', ''), v_owner ->> 'actor',
            coalesce(v_owner ->> 'onBehalfOf', ''), NEW.ts);
    END IF;
    RETURN NULL;
END
$$;
ALTER FUNCTION minutebook.note_conversation() OWNER TO minutebook_owner;
REVOKE ALL ON FUNCTION minutebook.note_conversation() FROM PUBLIC;

-- For each row on purpose: the condition is looked at without a call, so that other events pay next to nothing.
CREATE OR REPLACE TRIGGER events_note_conversation AFTER INSERT ON minutebook.events
    FOR EACH ROW
    WHEN (NEW.type = ANY (ARRAY['envelope_received'::text, 'reply_recorded'::text, 'conversation_started'::text]))
    EXECUTE FUNCTION minutebook.note_conversation();
ALTER TABLE minutebook.events ENABLE ALWAYS TRIGGER events_note_conversation;
