-- Beside the log: which room a run is of, holds of closed rooms, and who was here last.
SET LOCAL ROLE minutebook_owner;

-- Every run by its id alone, since a run token need not name a room. Written in the transaction of the run's events
-- (../functions/30_note_run_or_hold.sql), so that it is there for every process when the command is answered.
CREATE TABLE minutebook.runs (
    run_id text CONSTRAINT runs_pkey PRIMARY KEY,
    stream_id bigint NOT NULL CONSTRAINT runs_stream REFERENCES minutebook.streams (id) ON DELETE CASCADE,
    state text NOT NULL CONSTRAINT runs_state_known CHECK (state IN ('requested', 'running', 'ended'))
);
CREATE INDEX runs_by_stream ON minutebook.runs (stream_id);

-- Of what happened before this table was there. A copy in a fork has its run's id too: the first stream is the run's.
INSERT INTO minutebook.runs (run_id, stream_id, state)
SELECT DISTINCT ON (e.run) e.run, e.stream_id, e.state
FROM (SELECT x.payload ->> 'runId' AS run, x.stream_id, x.seq, CASE x.payload ->> 'phase'
          WHEN 'running' THEN 'running' WHEN 'ended' THEN 'ended' ELSE 'requested' END AS state
      FROM minutebook.events x
      WHERE x.type = 'state_changed' AND x.origin <> 'harness' AND x.payload ->> 'kind' IN ('run_requested', 'run_phase')
        AND x.payload ->> 'runId' IS NOT NULL) e
ORDER BY e.run, e.stream_id, e.seq DESC;

-- Nothing is appended to a closed room, and a legal hold may still be set on it and released: what was done is kept here
-- (../functions/31_hold_closed_v1.sql).
CREATE TABLE minutebook.holds (
    stream_id bigint NOT NULL CONSTRAINT holds_stream REFERENCES minutebook.streams (id) ON DELETE CASCADE,
    id text NOT NULL,
    is_set boolean NOT NULL,
    actor_kind text NOT NULL,
    actor_id text NOT NULL,
    reason text NOT NULL,
    ts timestamptz NOT NULL DEFAULT pg_catalog.clock_timestamp(),
    CONSTRAINT holds_pkey PRIMARY KEY (stream_id, id)
);

-- Presence: when a person was last seen in a room, and last did something in it. No part of the log.
CREATE TABLE minutebook.presence (
    stream_id bigint NOT NULL CONSTRAINT presence_stream REFERENCES minutebook.streams (id) ON DELETE CASCADE,
    principal text NOT NULL,
    seen_at timestamptz NOT NULL,
    acted_at timestamptz,
    CONSTRAINT presence_pkey PRIMARY KEY (stream_id, principal)
) WITH (fillfactor = 50);

GRANT SELECT ON minutebook.runs, minutebook.holds, minutebook.presence TO minutebook_app, minutebook_auditor;
GRANT INSERT, UPDATE ON minutebook.presence TO minutebook_app;
