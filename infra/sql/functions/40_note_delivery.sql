-- Writes what an event of a delivery means beside the log, in the transaction of the event: where it stands, when there is
-- something to do, and whose turn it is in its order. What the runner acts on is the stream; a row only says where to look.
CREATE OR REPLACE FUNCTION minutebook.note_delivery() RETURNS trigger
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    p jsonb := NEW.payload;
    v_order text;
BEGIN
    IF NEW.type = 'delivery_planned' THEN
        IF NEW.seq <> 1 THEN
            RETURN NULL;
        END IF;
        v_order := p ->> 'order';
        INSERT INTO minutebook.deliveries (stream_id, id, tenant, channel, destination, lane, state, due_at, blocked,
            order_key, order_until, conversation_id, run_id, correlation_id, expires_at, codec, codec_version, planned_at,
            updated_at, recipient)
        SELECT s.id, p ->> 'deliveryId', p ->> 'tenant', p ->> 'channel', p ->> 'destination', p ->> 'lane',
            'planned', (p ->> 'dueAt')::timestamptz,
            v_order IS NOT NULL AND EXISTS (SELECT FROM minutebook.deliveries d
                WHERE d.order_key = v_order AND d.ended_at IS NULL),
            v_order, (p ->> 'orderUntil')::timestamptz, p ->> 'conversationId', p ->> 'runId', p ->> 'correlationId',
            (p ->> 'expiresAt')::timestamptz, p ->> 'codec', (p ->> 'codecVersion')::integer, NEW.ts, NEW.ts,
            p ->> 'recipient'
        FROM minutebook.streams s WHERE s.id = NEW.stream_id AND s.kind = 'delivery';
        RETURN NULL;
    ELSIF NEW.type = 'attempt_started' THEN
        UPDATE minutebook.deliveries d SET state = 'attempting', attempts = (p ->> 'n')::integer,
            due_at = (p ->> 'leaseUntil')::timestamptz, blocked = false, updated_at = NEW.ts
        WHERE d.stream_id = NEW.stream_id;
        RETURN NULL;
    ELSIF NEW.type = 'attempt_ended' THEN
        UPDATE minutebook.deliveries d SET state = p ->> 'state', updated_at = NEW.ts,
            due_at = coalesce((p ->> 'nextAt')::timestamptz, d.due_at),
            reason = CASE WHEN p ->> 'state' = 'cancelled' THEN d.reason ELSE coalesce(p ->> 'reason', '') END,
            ended_at = CASE WHEN p ->> 'state' IN ('accepted', 'cancelled', 'dead') THEN NEW.ts END,
            seal_at = CASE p ->> 'state' WHEN 'accepted' THEN (p ->> 'openUntil')::timestamptz WHEN 'cancelled' THEN NEW.ts END
        WHERE d.stream_id = NEW.stream_id RETURNING CASE WHEN d.ended_at IS NOT NULL THEN d.order_key END INTO v_order;
    ELSIF NEW.type = 'delivery_died' THEN
        UPDATE minutebook.deliveries d SET state = 'dead', reason = p ->> 'reason', updated_at = NEW.ts, ended_at = NEW.ts,
            blocked = false, seal_at = (p ->> 'replayUntil')::timestamptz
        WHERE d.stream_id = NEW.stream_id RETURNING d.order_key INTO v_order;
    ELSIF NEW.type = 'delivery_expired' THEN
        UPDATE minutebook.deliveries d SET state = 'expired', reason = 'expired', updated_at = NEW.ts, ended_at = NEW.ts,
            blocked = false, seal_at = NEW.ts
        WHERE d.stream_id = NEW.stream_id RETURNING d.order_key INTO v_order;
    ELSIF NEW.type = 'delivery_cancelled' THEN
        UPDATE minutebook.deliveries d SET reason = p ->> 'reason', updated_at = NEW.ts,
            state = CASE WHEN p ->> 'underWay' = 'true' THEN d.state ELSE 'cancelled' END,
            ended_at = CASE WHEN p ->> 'underWay' = 'true' THEN NULL ELSE NEW.ts END,
            seal_at = CASE WHEN p ->> 'underWay' = 'true' THEN NULL ELSE NEW.ts END, blocked = false
        WHERE d.stream_id = NEW.stream_id RETURNING CASE WHEN d.ended_at IS NOT NULL THEN d.order_key END INTO v_order;
    ELSIF NEW.type = 'delivery_replayed' THEN
        UPDATE minutebook.deliveries d SET state = 'planned', reason = '', due_at = (p ->> 'dueAt')::timestamptz,
            expires_at = (p ->> 'expiresAt')::timestamptz, updated_at = NEW.ts, ended_at = NULL, seal_at = NULL
        WHERE d.stream_id = NEW.stream_id;
        RETURN NULL;
    ELSE
        RETURN NULL;
    END IF;
    IF v_order IS NOT NULL THEN
        PERFORM minutebook.release_order(v_order);
    END IF;
    RETURN NULL;
END
$$;
ALTER FUNCTION minutebook.note_delivery() OWNER TO minutebook_owner;
REVOKE ALL ON FUNCTION minutebook.note_delivery() FROM PUBLIC;

-- For each row on purpose: the condition is looked at without a call, so that other events pay next to nothing.
CREATE OR REPLACE TRIGGER events_note_delivery AFTER INSERT ON minutebook.events
    FOR EACH ROW
    WHEN (NEW.type = ANY (ARRAY['delivery_planned'::text, 'attempt_started'::text, 'attempt_ended'::text,
        'delivery_died'::text, 'delivery_expired'::text, 'delivery_cancelled'::text, 'delivery_replayed'::text]))
    EXECUTE FUNCTION minutebook.note_delivery();
ALTER TABLE minutebook.events ENABLE ALWAYS TRIGGER events_note_delivery;
