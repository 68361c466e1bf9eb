-- Stamps a row that enters the log by another way than append_v1, which stamps its own (with a hash, and this trigger
-- costs a look-up a row): seq follows its predecessor, the stream is open, time never runs back; salt, commitment and
-- hash are computed here. Whatever comes with a hash of its own is checked by 11_advance_streams.sql.
CREATE OR REPLACE FUNCTION minutebook.guard_event_insert() RETURNS trigger
LANGUAGE plpgsql AS $$
DECLARE
    v_stream text;
    v_sealed boolean;
    v_prev_hash bytea;
    v_prev_ts timestamptz;
    v_payload text := NEW.payload::text;
BEGIN
    SELECT s.name, s.sealed, p.hash, p.ts INTO v_stream, v_sealed, v_prev_hash, v_prev_ts
    FROM minutebook.streams s
    LEFT JOIN minutebook.events p ON p.stream_id = s.id AND p.seq = NEW.seq - 1
    WHERE s.id = NEW.stream_id;
    IF NOT FOUND THEN
        RAISE EXCEPTION 'event of a stream that does not exist' USING ERRCODE = 'MB001';
    ELSIF v_sealed AND NOT minutebook.is_late_erasure(NEW.stream_id, NEW.seq, NEW.type, NEW.origin, NEW.payload) THEN
        RAISE EXCEPTION 'the stream is sealed' USING ERRCODE = 'MB002';
    ELSIF NEW.seq < 1 OR (NEW.seq > 1 AND v_prev_hash IS NULL) THEN
        RAISE EXCEPTION 'seq % does not follow the stream', NEW.seq USING ERRCODE = 'MB003';
    ELSIF v_payload IS NULL THEN
        RAISE EXCEPTION 'an event enters the log with its payload' USING ERRCODE = 'MB004';
    END IF;
    NEW.ts := greatest(clock_timestamp(), v_prev_ts);
    NEW.salt := uuid_send(gen_random_uuid());
    NEW.bytes := octet_length(v_payload);
    NEW.commitment := sha256(NEW.salt || convert_to(v_payload, 'UTF8'));
    NEW.prev_hash := coalesce(v_prev_hash, '\x0000000000000000000000000000000000000000000000000000000000000000'::bytea);
    NEW.hash := minutebook.event_hash(v_stream, NEW.seq, NEW.id, NEW.type, NEW.schema_version, NEW.actor_kind,
        NEW.actor_id, NEW.actor_role, NEW.run_id, NEW.caused_by, NEW.origin, NEW.ts, NEW.redactions, NEW.classes,
        NEW.origin_client, NEW.origin_key, NEW.commitment, NEW.prev_hash);
    RETURN NEW;
END
$$;
ALTER FUNCTION minutebook.guard_event_insert() OWNER TO minutebook_owner;
REVOKE ALL ON FUNCTION minutebook.guard_event_insert() FROM PUBLIC;

CREATE OR REPLACE TRIGGER events_guard_insert BEFORE INSERT ON minutebook.events
    FOR EACH ROW WHEN (NEW.hash IS NULL) EXECUTE FUNCTION minutebook.guard_event_insert();
ALTER TABLE minutebook.events ENABLE ALWAYS TRIGGER events_guard_insert;
