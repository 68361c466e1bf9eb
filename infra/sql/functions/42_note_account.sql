-- Writes what an event of an account means beside the log, in the transaction of the event: which codes wait, and whose an
-- identity is and what may be sent to it. An identity that another account has, or had until lately, is refused here, whoever was asked before.
CREATE OR REPLACE FUNCTION minutebook.note_account() RETURNS trigger
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    p jsonb := NEW.payload;
    v_name text;
    v_tenant text;
BEGIN
    SELECT s.name, s.tenant INTO v_name, v_tenant FROM minutebook.streams s
    WHERE s.id = NEW.stream_id AND s.kind = 'account';
    IF NOT FOUND THEN
        RETURN NULL;
    END IF;
    IF NEW.type = 'link_begun' THEN
        INSERT INTO minutebook.link_challenges (link_id, stream_id, tenant, account, code, expires_at)
        VALUES (p ->> 'linkId', NEW.stream_id, v_tenant, p ->> 'account', p ->> 'code', (p ->> 'expiresAt')::timestamptz);
        RETURN NULL;
    END IF;
    IF NEW.type = 'unlinked' THEN
        UPDATE minutebook.linked_identities i SET holder = NULL, left_account = i.holder, updated_at = NEW.ts,
            free_at = (p ->> 'freeAt')::timestamptz
        WHERE i.tenant = v_tenant AND i.channel = p ->> 'channel' AND i.native = p ->> 'native'
          AND 'account:' || i.holder = v_name;
        RETURN NULL;
    END IF;
    IF NEW.type = 'push_changed' THEN
        UPDATE minutebook.linked_identities i SET push = p ->> 'push', updated_at = NEW.ts
        WHERE i.tenant = v_tenant AND i.link_id = p ->> 'linkId' AND 'account:' || i.holder = v_name;
        RETURN NULL;
    END IF;
    DELETE FROM minutebook.link_challenges c WHERE c.link_id = p ->> 'linkId' AND c.stream_id = NEW.stream_id;
    IF NEW.type = 'link_confirmed' AND 'account:' || (p ->> 'home') = v_name THEN
        INSERT INTO minutebook.linked_identities AS i (tenant, channel, native, holder, link_id, push, updated_at)
        VALUES (v_tenant, p ->> 'channel', p ->> 'native', p ->> 'home', p ->> 'linkId', p ->> 'push', NEW.ts)
        ON CONFLICT ON CONSTRAINT linked_identities_pkey DO UPDATE SET
            holder = EXCLUDED.holder, link_id = EXCLUDED.link_id, push = EXCLUDED.push, updated_at = EXCLUDED.updated_at
        WHERE i.holder IS NULL AND (i.left_account = EXCLUDED.holder OR i.free_at <= clock_timestamp());
        IF NOT FOUND THEN
            RAISE EXCEPTION 'the identity is of another account' USING ERRCODE = 'unique_violation';
        END IF;
    END IF;
    RETURN NULL;
END
$$;
ALTER FUNCTION minutebook.note_account() OWNER TO minutebook_owner;
REVOKE ALL ON FUNCTION minutebook.note_account() FROM PUBLIC;

-- For each row on purpose: the condition is looked at without a call, so that other events pay next to nothing.
CREATE OR REPLACE TRIGGER events_note_account AFTER INSERT ON minutebook.events
    FOR EACH ROW
    WHEN (NEW.type = ANY (ARRAY['link_begun'::text, 'link_voided'::text, 'link_confirmed'::text, 'push_changed'::text,
        'unlinked'::text]))
    EXECUTE FUNCTION minutebook.note_account();
ALTER TABLE minutebook.events ENABLE ALWAYS TRIGGER events_note_account;
