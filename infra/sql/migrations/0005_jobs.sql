-- The schema of the job engine. Its tables come from the engine's own migrations, which are applied after this file.
CREATE SCHEMA minutebook_jobs AUTHORIZATION minutebook_owner;
SET LOCAL ROLE minutebook_owner;
REVOKE ALL ON SCHEMA minutebook_jobs FROM PUBLIC;
GRANT USAGE ON SCHEMA minutebook_jobs TO minutebook_app, minutebook_projector, minutebook_auditor;

-- From when on a process manager answers events. Written here, never by a server: a process that an upgrade brings must
-- not answer what happened long before it, and must answer what happens while its first worker is still starting.
CREATE TABLE minutebook_jobs.processes (
    name text CONSTRAINT processes_pkey PRIMARY KEY,
    began_at timestamptz NOT NULL DEFAULT pg_catalog.clock_timestamp()
);
INSERT INTO minutebook_jobs.processes (name) VALUES ('rooms');
GRANT SELECT ON minutebook_jobs.processes TO minutebook_projector, minutebook_auditor;

-- When a sweep last came to its end, and how often it should.
CREATE TABLE minutebook_jobs.sweeps (
    name text CONSTRAINT sweeps_pkey PRIMARY KEY,
    every_s integer NOT NULL,
    done_at timestamptz NOT NULL
) WITH (fillfactor = 50);
GRANT SELECT, INSERT, UPDATE ON minutebook_jobs.sweeps TO minutebook_app;
GRANT SELECT ON minutebook_jobs.sweeps TO minutebook_auditor;

-- What the engine makes from here on, in any of its versions: the app runs jobs, the projector only defers them, in the
-- transaction of its checkpoint (guards.py knows these by heart).
ALTER DEFAULT PRIVILEGES FOR ROLE minutebook_owner IN SCHEMA minutebook_jobs
    GRANT SELECT, INSERT, UPDATE, DELETE ON TABLES TO minutebook_app;
ALTER DEFAULT PRIVILEGES FOR ROLE minutebook_owner IN SCHEMA minutebook_jobs
    GRANT SELECT, INSERT ON TABLES TO minutebook_projector;
ALTER DEFAULT PRIVILEGES FOR ROLE minutebook_owner IN SCHEMA minutebook_jobs
    GRANT SELECT ON TABLES TO minutebook_auditor;
ALTER DEFAULT PRIVILEGES FOR ROLE minutebook_owner IN SCHEMA minutebook_jobs
    GRANT USAGE ON SEQUENCES TO minutebook_app, minutebook_projector;
ALTER DEFAULT PRIVILEGES FOR ROLE minutebook_owner IN SCHEMA minutebook_jobs
    GRANT EXECUTE ON FUNCTIONS TO minutebook_app, minutebook_projector;
