-- Takes the words out of inboxes in the transaction of the event that says so: a delivery was cancelled or purged, or a
-- question or reply was erased. What is left moves to a new place, so that whoever follows or resumes is told. What is
-- erased goes from the payloads of deliveries as well: of those that wait, which the permit cancels, and of those that have
-- ended and would keep theirs for a day or two.
CREATE OR REPLACE FUNCTION minutebook.note_inbox() RETURNS trigger
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    v_delivery text;
    v_turn bigint;
    v_run text;
    v_item record;
    v_last bigint;
BEGIN
    IF NEW.type = 'state_changed' THEN
        SELECT nullif((e.payload ->> 'turn')::bigint, 0), CASE e.type WHEN 'user_recorded' THEN e.payload ->> 'id' END
        INTO v_turn, v_run FROM minutebook.events e
        WHERE e.stream_id = NEW.stream_id AND e.seq = (NEW.payload ->> 'erasedSeq')::bigint
          AND e.type IN ('user_recorded', 'reply_recorded');
        IF NOT FOUND THEN
            RETURN NULL;
        END IF;
        WITH gone AS (
            DELETE FROM minutebook.delivery_payloads p USING minutebook.deliveries d, minutebook.streams s
            WHERE s.id = NEW.stream_id AND d.conversation_id = substr(s.name, length('conversation:') + 1)
              AND p.delivery_id = d.id AND (d.run_id = v_run OR EXISTS (SELECT FROM minutebook.events f
                  WHERE f.stream_id = d.stream_id AND f.seq = 1 AND (f.payload ->> 'turn')::bigint = v_turn))
            RETURNING p.delivery_id)
        UPDATE minutebook.deliveries d SET has_payload = false FROM gone g WHERE d.id = g.delivery_id;
        IF v_turn IS NULL THEN
            RETURN NULL;
        END IF;
    ELSE
        -- Whoever stores a part right now has this lock until they commit.
        SELECT d.id INTO v_delivery FROM minutebook.deliveries d WHERE d.stream_id = NEW.stream_id FOR UPDATE;
        IF NOT FOUND THEN
            RETURN NULL;
        END IF;
    END IF;
    FOR v_item IN
        SELECT i.key, i.head FROM minutebook.inbox_items i
        WHERE i.revoked_at IS NULL
          AND (i.delivery_id = v_delivery OR (i.stream_id = NEW.stream_id AND i.turn = v_turn))
        ORDER BY i.head, i.cursor
    LOOP
        UPDATE minutebook.inbox_heads h SET last = h.last + 1 WHERE h.id = v_item.head RETURNING h.last INTO v_last;
        UPDATE minutebook.inbox_items i SET cursor = v_last, body = NULL, wrapped = NULL, revoked_at = NEW.ts
        WHERE i.key = v_item.key;
        PERFORM pg_notify('minutebook_inbox', v_item.head::text);
    END LOOP;
    RETURN NULL;
END
$$;
ALTER FUNCTION minutebook.note_inbox() OWNER TO minutebook_owner;
REVOKE ALL ON FUNCTION minutebook.note_inbox() FROM PUBLIC;

-- For each row on purpose: the condition is looked at without a call, so that other events pay next to nothing. Behind
-- events_note_delivery, by its name.
CREATE OR REPLACE TRIGGER events_note_inbox AFTER INSERT ON minutebook.events
    FOR EACH ROW
    WHEN (NEW.type = ANY (ARRAY['delivery_cancelled'::text, 'delivery_purged'::text])
        OR (NEW.type = 'state_changed'::text AND NEW.origin_client = 'erased'::text))
    EXECUTE FUNCTION minutebook.note_inbox();
ALTER TABLE minutebook.events ENABLE ALWAYS TRIGGER events_note_inbox;
