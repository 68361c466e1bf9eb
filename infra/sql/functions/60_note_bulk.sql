-- Writes where a bulk plan stands beside the log, in the transaction of the event: what the process of jobs looks for.
CREATE OR REPLACE FUNCTION minutebook.note_bulk() RETURNS trigger
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    p jsonb := NEW.payload;
    v_tenant text;
BEGIN
    SELECT s.tenant INTO v_tenant FROM minutebook.streams s WHERE s.id = NEW.stream_id AND s.kind = 'bulk';
    IF NOT FOUND THEN
        RETURN NULL;
    END IF;
    IF NEW.type = 'bulk_planned' THEN
        INSERT INTO minutebook.bulk_plans (plan_id, stream_id, tenant, state, expires_at, updated_at)
        VALUES (p ->> 'planId', NEW.stream_id, v_tenant, 'planned', (p ->> 'expiresAt')::timestamptz, NEW.ts);
        RETURN NULL;
    END IF;
    UPDATE minutebook.bulk_plans b SET updated_at = NEW.ts, holder = NULL, lease_until = NULL,
        state = CASE NEW.type WHEN 'bulk_started' THEN 'running' ELSE p ->> 'outcome' END
    WHERE b.stream_id = NEW.stream_id;
    RETURN NULL;
END
$$;
ALTER FUNCTION minutebook.note_bulk() OWNER TO minutebook_owner;
REVOKE ALL ON FUNCTION minutebook.note_bulk() FROM PUBLIC;

-- For each row on purpose: the condition is looked at without a call, so that other events pay next to nothing.
CREATE OR REPLACE TRIGGER events_note_bulk AFTER INSERT ON minutebook.events
    FOR EACH ROW
    WHEN (NEW.type = ANY (ARRAY['bulk_planned'::text, 'bulk_started'::text, 'bulk_ended'::text]))
    EXECUTE FUNCTION minutebook.note_bulk();
ALTER TABLE minutebook.events ENABLE ALWAYS TRIGGER events_note_bulk;
