-- Which stream was forked from which, so that an erasure in a source reaches the copies (../functions/28_erasure.sql).
SET LOCAL ROLE minutebook_owner;

-- No reference to the source: a fork survives its purge, and what was erased until then is erased in the fork too.
CREATE TABLE minutebook.forks (
    stream_id bigint CONSTRAINT forks_pkey PRIMARY KEY
        CONSTRAINT forks_stream REFERENCES minutebook.streams (id) ON DELETE CASCADE,
    source_id bigint NOT NULL,
    through_seq bigint NOT NULL
);
CREATE INDEX forks_by_source ON minutebook.forks (source_id);

-- Forks that were made before. A fork of a fork has a copy of its source's event; the last one is its own.
INSERT INTO minutebook.forks (stream_id, source_id, through_seq)
SELECT f.stream_id, s.id, f.seq - 1
FROM (SELECT DISTINCT ON (e.stream_id) e.stream_id, e.seq, e.payload ->> 'room' AS room
      FROM minutebook.events e
      WHERE e.type = 'state_changed' AND e.origin <> 'harness' AND e.payload ->> 'kind' = 'forked_from'
      ORDER BY e.stream_id, e.seq DESC) f
JOIN minutebook.streams s ON s.name = 'room:' || f.room;

-- Of how things were before: what an erasure took away may still stand in snapshots.
DELETE FROM minutebook.snapshots n
WHERE EXISTS (SELECT FROM minutebook.events e WHERE e.stream_id = n.stream_id AND e.payload IS NULL);

GRANT SELECT ON minutebook.forks TO minutebook_app, minutebook_auditor;
