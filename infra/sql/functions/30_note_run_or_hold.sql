-- Writes what an event of a run or of a hold means outside its stream, in the transaction of the event: where the run is,
-- and whether retention must wait. What a harness pushed means nothing here, whatever its payload says, and so does what
-- a fork copies. A run's id is unique over the whole server: the second stream that would have it is refused.
CREATE OR REPLACE FUNCTION minutebook.note_run_or_hold() RETURNS trigger
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    v_kind text := NEW.payload ->> 'kind';
    v_run text := NEW.payload ->> 'runId';
BEGIN
    IF v_kind IS NULL OR coalesce(current_setting('minutebook.fork_source', true), '') <> '' THEN
        RETURN NULL;
    ELSIF v_kind IN ('hold_set', 'hold_released') THEN
        UPDATE minutebook.streams s SET held = (v_kind = 'hold_set') WHERE s.id = NEW.stream_id;
    ELSIF v_kind IN ('run_requested', 'run_phase') AND v_run IS NOT NULL THEN
        INSERT INTO minutebook.runs AS r (run_id, stream_id, state)
        VALUES (v_run, NEW.stream_id, CASE NEW.payload ->> 'phase'
            WHEN 'running' THEN 'running' WHEN 'ended' THEN 'ended' ELSE 'requested' END)
        ON CONFLICT ON CONSTRAINT runs_pkey DO UPDATE
            SET state = CASE WHEN EXCLUDED.state = 'requested' THEN r.state ELSE EXCLUDED.state END
            WHERE r.stream_id = EXCLUDED.stream_id;
        IF NOT FOUND THEN
            RAISE EXCEPTION 'the run is of another stream' USING ERRCODE = 'unique_violation';
        END IF;
    END IF;
    RETURN NULL;
END
$$;
ALTER FUNCTION minutebook.note_run_or_hold() OWNER TO minutebook_owner;
REVOKE ALL ON FUNCTION minutebook.note_run_or_hold() FROM PUBLIC;

-- For each row on purpose: the condition is looked at without a call, so that other events pay next to nothing.
CREATE OR REPLACE TRIGGER events_note_run_or_hold AFTER INSERT ON minutebook.events
    FOR EACH ROW WHEN (NEW.type = 'state_changed'::text AND NEW.origin <> 'harness'::text)
    EXECUTE FUNCTION minutebook.note_run_or_hold();
ALTER TABLE minutebook.events ENABLE ALWAYS TRIGGER events_note_run_or_hold;
