-- What a tool returns is often about 2 KiB, just above where PostgreSQL begins to compress a row and to move parts of it
-- away: for such events that took half the time of their append. Up to 4 KiB they stay in their row as they are.
SET LOCAL ROLE minutebook_owner;
ALTER TABLE minutebook.events SET (toast_tuple_target = 4096);
