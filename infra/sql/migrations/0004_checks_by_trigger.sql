-- PostgreSQL reads the text of every CHECK constraint again for each statement that writes the table: an eighth of an
-- append of one event. What they held is held by the triggers that look at each row anyway, as strictly and for the
-- same writers: events in functions/11_advance_streams.sql and 12_guard_event_change.sql, streams in 15_guard_stream.sql.
ALTER TABLE minutebook.events
    DROP CONSTRAINT events_id_is_ulid,
    DROP CONSTRAINT events_origin_known,
    DROP CONSTRAINT events_erased_whole,
    DROP CONSTRAINT events_origin_whole;
ALTER TABLE minutebook.streams
    DROP CONSTRAINT streams_retention_range,
    DROP CONSTRAINT streams_sealed_has_time;
