-- Writes beside the log what became of a message whose answer goes somewhere, in the transaction of the record: taken up as
-- a turn, or rejected; and the turn's end. Of all other messages there is no row, and nothing is written. Who resolves looks
-- at what it can verify alone, so that a forged record costs a look at the log and no more.
CREATE OR REPLACE FUNCTION minutebook.note_answer() RETURNS trigger
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    IF coalesce(current_setting('minutebook.fork_source', true), '') <> '' THEN
        RETURN NULL;
    ELSIF NEW.type = 'user_recorded' THEN
        UPDATE minutebook.answers a SET turn = NEW.payload ->> 'turn', user_seq = NEW.seq,
            due_at = CASE WHEN NEW.payload ->> 'status' = 'rejected' THEN clock_timestamp() END
        WHERE a.stream_id = NEW.stream_id AND a.envelope_id = NEW.payload ->> 'id' AND a.user_seq IS NULL;
    ELSE
        UPDATE minutebook.answers a SET reply_seq = NEW.seq, due_at = clock_timestamp()
        WHERE a.stream_id = NEW.stream_id AND a.turn = NEW.payload ->> 'turn' AND a.reply_seq IS NULL;
    END IF;
    RETURN NULL;
END
$$;
ALTER FUNCTION minutebook.note_answer() OWNER TO minutebook_owner;
REVOKE ALL ON FUNCTION minutebook.note_answer() FROM PUBLIC;

-- For each row on purpose: the condition is looked at without a call, so that other events pay next to nothing.
CREATE OR REPLACE TRIGGER events_note_answer AFTER INSERT ON minutebook.events
    FOR EACH ROW
    WHEN (NEW.type = ANY (ARRAY['user_recorded'::text, 'reply_recorded'::text]))
    EXECUTE FUNCTION minutebook.note_answer();
ALTER TABLE minutebook.events ENABLE ALWAYS TRIGGER events_note_answer;
