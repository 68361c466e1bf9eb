-- Who takes part in shared conversations.
SET LOCAL ROLE minutebook_owner;

-- The newest event of a conversation about one person (their part in it, their clearance), also before a place: one
-- look-up. Few events are of these types; to all others the index costs a comparison.
CREATE INDEX events_of_people ON minutebook.events (stream_id, origin_client, seq)
    WHERE type IN ('participant_added', 'participant_removed', 'clearance_recorded');

-- Who takes part in which shared conversation, its owner among them, for their lists; what the events say of it is what
-- counts, and is looked at before a line is shown (../functions/36_note_participant.sql). An empty text stands for what
-- an identity lacks.
CREATE TABLE minutebook.conversation_participants (
    stream_id bigint NOT NULL
        CONSTRAINT conversation_participants_stream REFERENCES minutebook.streams (id) ON DELETE CASCADE,
    tenant text NOT NULL,
    actor text NOT NULL,
    CONSTRAINT conversation_participants_pkey PRIMARY KEY (actor, tenant, stream_id)
);
CREATE INDEX conversation_participants_by_stream ON minutebook.conversation_participants (stream_id);
GRANT SELECT ON minutebook.conversation_participants TO minutebook_app, minutebook_auditor;
