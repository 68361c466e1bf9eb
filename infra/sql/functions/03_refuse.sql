-- Raises what it is told: five characters of SQLSTATE, a space, a sentence. For checks inside a statement.
CREATE OR REPLACE FUNCTION minutebook.refuse(p_fault text) RETURNS boolean
LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION '%', substr(p_fault, 7) USING ERRCODE = left(p_fault, 5);
END
$$;
ALTER FUNCTION minutebook.refuse(text) OWNER TO minutebook_owner;
REVOKE ALL ON FUNCTION minutebook.refuse(text) FROM PUBLIC;
