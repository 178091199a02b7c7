"""What the catalogs of a server with the extension say of its objects. `sql` runs a statement and returns the rows of its only
column, a JSON document."""

import json

_MEMBERS = """
    FROM pg_depend d JOIN pg_extension e ON d.refclassid = 'pg_extension'::regclass AND d.refobjid = e.oid AND e.extname = 'postbox'
"""


def _columns(relation):
    """A JSON array of the columns of a relation, NULL if there are none."""
    return f"""(SELECT json_agg(json_build_object('name', a.attname, 'type', format_type(a.atttypid, a.atttypmod),
            'comment', col_description(a.attrelid, a.attnum)) ORDER BY a.attnum)
        FROM pg_attribute a WHERE a.attrelid = {relation} AND a.attnum > 0 AND NOT a.attisdropped)"""


_FUNCTIONS = f"""
    SELECT json_build_object('name', p.proname, 'comment', obj_description(p.oid, 'pg_proc'), 'returns', pg_get_function_result(p.oid),
        'form', p.oid::regprocedure::text, 'arguments', (
            SELECT coalesce(json_agg(json_build_object('name', p.proargnames[i], 'type', format_type(p.proargtypes[i - 1], NULL),
                'default', pg_get_function_arg_default(p.oid, i)) ORDER BY i), '[]') FROM generate_series(1, p.pronargs) i))
    {_MEMBERS} JOIN pg_proc p ON d.classid = 'pg_proc'::regclass AND d.objid = p.oid AND d.deptype = 'e' ORDER BY p.proname, p.oid
"""

_RELATIONS = f"""
    SELECT json_build_object('name', c.relname, 'kind', c.relkind, 'comment', obj_description(c.oid, 'pg_class'), 'columns', {_columns('c.oid')})
    {_MEMBERS} JOIN pg_class c ON d.classid = 'pg_class'::regclass AND d.objid = c.oid AND d.deptype = 'e'
    WHERE c.relkind IN ('r', 'v') ORDER BY c.relname
"""

_TYPES = f"""
    SELECT json_build_object('name', t.typname, 'comment', obj_description(t.oid, 'pg_type'), 'kind', t.typtype,
        'base', CASE t.typtype WHEN 'd' THEN format_type(t.typbasetype, t.typtypmod) END,
        'labels', (SELECT json_agg(l.enumlabel ORDER BY l.enumsortorder) FROM pg_enum l WHERE l.enumtypid = t.oid), 'columns', {_columns('t.typrelid')})
    {_MEMBERS} JOIN pg_type t ON d.classid = 'pg_type'::regclass AND d.objid = t.oid AND d.deptype = 'e'
    WHERE t.typtype IN ('e', 'd', 'c') AND t.typelem = 0 ORDER BY t.typname
"""

# Members of other kinds. Sequences, indexes, array types, row types and event triggers are described with what they belong to, or not at all.
_OTHERS = f"""
    SELECT to_json(pg_describe_object(d.classid, d.objid, d.objsubid))
    {_MEMBERS} LEFT JOIN pg_class c ON d.classid = 'pg_class'::regclass AND c.oid = d.objid
    LEFT JOIN pg_type t ON d.classid = 'pg_type'::regclass AND t.oid = d.objid
    WHERE d.deptype = 'e' AND d.classid <> ALL ('{{pg_proc,pg_event_trigger}}'::regclass[])
      AND (c.relkind NOT IN ('r', 'v', 'S', 'i') OR t.typtype NOT IN ('e', 'd', 'c') AND t.typelem = 0 OR c.oid IS NULL AND t.oid IS NULL)
    ORDER BY 1::text
"""

# The library's own defaults: what the configuration of the server says does not count.
_SETTINGS = """
    SELECT json_build_object('name', name, 'default', boot_val, 'unit', unit, 'kind', vartype, 'least', min_val, 'greatest', max_val,
        'values', enumvals, 'context', context, 'short', short_desc, 'extra', extra_desc)
    FROM pg_settings WHERE name LIKE 'postbox.%' ORDER BY name
"""


class Catalog:
    def __init__(self, sql):
        def read(query):
            return [json.loads(row) for row in sql(query)]

        self.functions = read(_FUNCTIONS)
        self.relations = {row["name"]: row for row in read(_RELATIONS)}
        self.types = {row["name"]: row for row in read(_TYPES)}
        self.settings = read(_SETTINGS)
        self.others = read(_OTHERS)
