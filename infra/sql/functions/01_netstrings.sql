-- A list as one netstring whose content is the netstrings of its elements: part of the hash chain's canonical form.
-- A list that has nulls or lists in it has no such form and is refused.
CREATE OR REPLACE FUNCTION minutebook.netstrings(p_values text[]) RETURNS text
LANGUAGE plpgsql IMMUTABLE STRICT AS $$
DECLARE
    v_all text := '';
    v_one text;
BEGIN
    IF p_values = '{}' THEN
        RETURN '0:,';
    ELSIF array_ndims(p_values) > 1 OR array_position(p_values, NULL) IS NOT NULL THEN
        RAISE EXCEPTION 'a list of an event is flat and without nulls' USING ERRCODE = 'MB004';
    END IF;
    FOREACH v_one IN ARRAY p_values LOOP
        v_all := v_all || octet_length(v_one) || ':' || v_one || ',';
    END LOOP;
    RETURN octet_length(v_all) || ':' || v_all || ',';
END
$$;
ALTER FUNCTION minutebook.netstrings(text[]) OWNER TO minutebook_owner;
REVOKE ALL ON FUNCTION minutebook.netstrings(text[]) FROM PUBLIC;
