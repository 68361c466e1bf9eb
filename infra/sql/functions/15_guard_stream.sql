-- What a stream's row may do: begin empty, move forward with its events, be sealed once. Only the owner's code writes
-- here, so the settings of append_v1 hold; what retention may delete is guarded in 16_guard_stream_delete.sql.
CREATE OR REPLACE FUNCTION minutebook.guard_stream() RETURNS trigger
LANGUAGE plpgsql AS $$
DECLARE
    v_seq bigint;
    v_hash bytea;
    v_ts timestamptz;
BEGIN
    IF TG_OP = 'INSERT' THEN
        IF NEW.version <> 0 OR NEW.bytes <> 0 OR NEW.sealed OR NEW.held OR NEW.last_ts IS NOT NULL
            OR NEW.head_hash <> '\x0000000000000000000000000000000000000000000000000000000000000000'::bytea
        THEN
            RAISE EXCEPTION 'a stream begins empty' USING ERRCODE = 'MB020';
        ELSIF octet_length(NEW.name) > 320 OR strpos(NEW.name, NEW.kind || ':') <> 1 OR NEW.kind !~ '^[a-z_]+$' THEN
            RAISE EXCEPTION 'a stream is named after its kind: kind:id' USING ERRCODE = 'MB020';
        ELSIF NEW.retention_days NOT BETWEEN 1 AND 9999 THEN
            RAISE EXCEPTION 'a stream is kept from 1 to 9999 days after its end' USING ERRCODE = 'check_violation';
        END IF;
        NEW.created_at := clock_timestamp();
        RETURN NEW;
    END IF;
    IF NEW.id <> OLD.id OR NEW.name <> OLD.name OR NEW.kind <> OLD.kind OR NEW.tenant <> OLD.tenant
        OR NEW.retention_days IS DISTINCT FROM OLD.retention_days OR NEW.created_at <> OLD.created_at
    THEN
        RAISE EXCEPTION 'id, name, kind, tenant, retention and creation time of a stream never change'
            USING ERRCODE = 'MB021';
    ELSIF OLD.sealed AND (NEW.version <> OLD.version OR NOT NEW.sealed
        OR NEW.closed_at IS DISTINCT FROM OLD.closed_at)
    THEN
        RAISE EXCEPTION 'a sealed stream stays as it is' USING ERRCODE = 'MB002';
    ELSIF NEW.version = OLD.version THEN
        IF NEW.bytes <> OLD.bytes OR NEW.head_hash <> OLD.head_hash OR NEW.last_ts IS DISTINCT FROM OLD.last_ts THEN
            RAISE EXCEPTION 'the head of a stream moves with its events' USING ERRCODE = 'MB022';
        END IF;
    ELSE
        SELECT e.seq, e.hash, e.ts INTO v_seq, v_hash, v_ts FROM minutebook.events e
        WHERE e.stream_id = NEW.id ORDER BY e.seq DESC LIMIT 1;
        IF NEW.version < OLD.version OR NEW.bytes < OLD.bytes OR (NEW.version = v_seq AND NEW.head_hash = v_hash
            AND NEW.last_ts = v_ts) IS NOT TRUE
        THEN
            RAISE EXCEPTION 'the head of a stream moves with its events' USING ERRCODE = 'MB022';
        END IF;
    END IF;
    IF NEW.sealed AND NOT OLD.sealed THEN
        NEW.closed_at := clock_timestamp();
    ELSIF NOT NEW.sealed AND NEW.closed_at IS NOT NULL THEN
        RAISE EXCEPTION 'a stream has a closing time when it is sealed' USING ERRCODE = 'check_violation';
    END IF;
    RETURN NEW;
END
$$;
ALTER FUNCTION minutebook.guard_stream() OWNER TO minutebook_owner;
REVOKE ALL ON FUNCTION minutebook.guard_stream() FROM PUBLIC;

CREATE OR REPLACE TRIGGER streams_guard BEFORE INSERT ON minutebook.streams
    FOR EACH ROW EXECUTE FUNCTION minutebook.guard_stream();
ALTER TABLE minutebook.streams ENABLE ALWAYS TRIGGER streams_guard;
-- Not for the one update that 11_advance_streams.sql makes from within its own trigger, after it has looked at every row:
-- to look again costs as much as the update. The only other triggers that update a stream set its hold, and seal what
-- says who looked into a conversation that is deleted.
CREATE OR REPLACE TRIGGER streams_guard_update BEFORE UPDATE ON minutebook.streams
    FOR EACH ROW WHEN (pg_trigger_depth() = 0) EXECUTE FUNCTION minutebook.guard_stream();
ALTER TABLE minutebook.streams ENABLE ALWAYS TRIGGER streams_guard_update;
