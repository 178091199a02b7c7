CREATE OR REPLACE FUNCTION postbox.is_operator() RETURNS boolean
    LANGUAGE C STABLE AS 'MODULE_PATHNAME';
COMMENT ON FUNCTION postbox.is_operator() IS 'Internal: whether the current user is a superuser or a member of postbox_operator.';
