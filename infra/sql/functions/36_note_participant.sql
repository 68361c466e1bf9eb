-- Keeps who takes part in a shared conversation beside the log, in the transaction of the event: for lists alone, whose
-- lines are looked at with the keys before they are shown. What a fork copies means nothing here.
CREATE OR REPLACE FUNCTION minutebook.note_participant() RETURNS trigger
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    v_who jsonb := coalesce(NEW.payload -> 'participant', NEW.payload -> 'owner');
    v_actor text := v_who ->> 'actor';
    v_tenant text := coalesce(v_who ->> 'tenant', '');
BEGIN
    IF v_actor IS NULL OR coalesce(current_setting('minutebook.fork_source', true), '') <> ''
        OR NOT EXISTS (SELECT FROM minutebook.streams s WHERE s.id = NEW.stream_id AND s.kind = 'conversation')
    THEN
        RETURN NULL;
    ELSIF NEW.type = 'participant_removed' THEN
        DELETE FROM minutebook.conversation_participants p
        WHERE p.actor = v_actor AND p.tenant = v_tenant AND p.stream_id = NEW.stream_id;
    ELSIF NEW.type = 'participant_added' OR (NEW.seq = 1 AND NEW.payload ->> 'mode' = 'shared') THEN
        INSERT INTO minutebook.conversation_participants (stream_id, tenant, actor)
        VALUES (NEW.stream_id, v_tenant, v_actor)
        ON CONFLICT ON CONSTRAINT conversation_participants_pkey DO NOTHING;
    END IF;
    RETURN NULL;
END
$$;
ALTER FUNCTION minutebook.note_participant() OWNER TO minutebook_owner;
REVOKE ALL ON FUNCTION minutebook.note_participant() FROM PUBLIC;

-- For each row on purpose: see 32_note_conversation.sql.
CREATE OR REPLACE TRIGGER events_note_participant AFTER INSERT ON minutebook.events
    FOR EACH ROW
    WHEN (NEW.type = ANY (ARRAY['participant_added'::text, 'participant_removed'::text, 'conversation_started'::text]))
    EXECUTE FUNCTION minutebook.note_participant();
ALTER TABLE minutebook.events ENABLE ALWAYS TRIGGER events_note_participant;
