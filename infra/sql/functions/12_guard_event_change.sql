-- Refuses every change of a stored event, the owner's too. Two exceptions: the eraser takes payload and salt away from
-- an event that a later erasure event of the stream names; retention deletes a whole expired stream. What a harness
-- pushed names nothing, whatever its payload says.
CREATE OR REPLACE FUNCTION minutebook.guard_event_change() RETURNS trigger
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    v_same minutebook.events;
BEGIN
    IF TG_OP = 'UPDATE' AND current_user = 'minutebook_eraser' AND OLD.payload IS NOT NULL
        AND NEW.payload IS NULL AND NEW.salt IS NULL
    THEN
        v_same := NEW;
        v_same.payload := OLD.payload;
        v_same.salt := OLD.salt;
        IF v_same IS NOT DISTINCT FROM OLD AND EXISTS (
            SELECT FROM minutebook.events e
            WHERE e.stream_id = OLD.stream_id AND e.seq > OLD.seq AND e.origin <> 'harness'
              AND e.payload @> jsonb_build_object('kind', 'payload_erased', 'erasedSeq', OLD.seq))
        THEN
            RETURN NEW;
        END IF;
    ELSIF TG_OP = 'DELETE' AND current_user = 'minutebook_retention' AND EXISTS (
        SELECT FROM minutebook.streams s
        WHERE s.id = OLD.stream_id AND s.sealed AND NOT s.held
          AND s.closed_at + make_interval(days => s.retention_days) <= clock_timestamp())
    THEN
        RETURN OLD;
    END IF;
    RAISE EXCEPTION 'the log is append-only: % of an event is refused', TG_OP USING ERRCODE = 'MB010';
END
$$;
ALTER FUNCTION minutebook.guard_event_change() OWNER TO minutebook_owner;
REVOKE ALL ON FUNCTION minutebook.guard_event_change() FROM PUBLIC;

CREATE OR REPLACE TRIGGER events_guard_change BEFORE UPDATE OR DELETE ON minutebook.events
    FOR EACH ROW EXECUTE FUNCTION minutebook.guard_event_change();
ALTER TABLE minutebook.events ENABLE ALWAYS TRIGGER events_guard_change;
