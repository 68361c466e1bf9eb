-- What the sweeps of rooms look for, without reading every room.
SET LOCAL ROLE minutebook_owner;

-- Since when a run is known. Of a run that was there before this column, since now.
ALTER TABLE minutebook.runs ADD COLUMN known_at timestamptz NOT NULL DEFAULT pg_catalog.clock_timestamp();
CREATE INDEX runs_under_way ON minutebook.runs (stream_id) WHERE state IN ('requested', 'running');

-- Rooms where a person holds the token that a system held before.
SET LOCAL ROLE minutebook_projector;
CREATE INDEX room_list_lent ON minutebook_views.room_list (stream_id)
    WHERE NOT sealed AND state ->> 'system_holder' IS NOT NULL AND state ->> 'driver' LIKE 'human:%';
