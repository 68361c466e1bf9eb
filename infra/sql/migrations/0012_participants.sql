-- Who takes part in shared conversations.
SET LOCAL ROLE minutebook_owner;

-- The newest event of a conversation about one person (their part in it, their clearance), also before a place: one
-- look-up. Few events are of these types; to all others the index costs a comparison.
CREATE INDEX events_of_people ON minutebook.events (stream_id, origin_client, seq)
    WHERE type IN ('participant_added', 'participant_removed', 'clearance_recorded');
