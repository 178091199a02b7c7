"""SQL that may run with a superuser's rights finds its names in pg_catalog and postbox, whatever the search_path.

Three kinds of places, each by its own rule:
  - What workers can run between two changes of role (the rooms in QUALIFIED): their search_path is a setting of the session, so
    every name and operator in the texts is qualified. The rooms log/ and table/ of a worker run as the owner of the outbox.
  - What a function in C++ runs for its caller (the rooms in PINNED): a SpiConnection is followed by a FixedSearchPath.
  - Functions in SQL (sql/install): SET search_path = pg_catalog, pg_temp, or a body in standard SQL, whose names are bound when
    it is created. pg_temp is never searched for functions and operators, but it is for tables: so these have their schema.
And C++ changes the role, the security context, the search_path and row_security in one room only, TRUSTED.
"""
import functools
import os
import re

from . import cpp
from .tree import Problem, line_of

RULES = {'operator': 'an operator without its schema', 'construct': 'a construct that looks up an operator by its name',
         'call': 'a function without its schema', 'type': 'a type without its schema', 'table': 'a table without its schema',
         'search-path': 'a SpiConnection without a FixedSearchPath', 'function': 'a function without a fixed search_path',
         'role': 'a change of the role or of what names mean, outside extension/trust'}

QUALIFIED = ('extension/base', 'extension/trust', 'extension/shared', 'worker/publisher', 'worker/publisher/base',
             'worker/publisher/store', 'worker/publisher/source')
PINNED = ('extension/lifecycle', 'extension/registry', 'extension/emit', 'extension/apply')
TRUSTED = 'extension/trust'
INSTALL = 'sql/install'
PATH = 'SET search_path = pg_catalog, pg_temp'

_CHANGE_OF_ROLE = re.compile(r'\b(?:SetUserIdAndSecContext|SetUserIdAndContext|SetCurrentRoleId|SetSessionAuthorization|SECURITY_[A-Z_]+)\b'
                             r'|\b(?:set_config_option(?:_ext)?|SetConfigOption)\(\s*"(?:search_path|row_security|role|session_authorization)"'
                             r'|\{\s*"(?:search_path|row_security|role|session_authorization)",\s*"')
# A literal is SQL if one of these stands in it; a message in prose has none of them.
_SQL = re.compile(r'\b(SELECT|INSERT INTO|UPDATE \w+\.|DELETE FROM|WHERE|FROM|RETURNING|JOIN|ORDER BY|VALUES|LOCK TABLE|UNION|CASE WHEN)\b')
_ADJACENT = re.compile(r'"(?:\\.|[^"\\\n])*"(?:\s*"(?:\\.|[^"\\\n])*")*')
_TOKEN = re.compile(r"""
    (?P<skip>\s+|--[^\n]*|/\*.*?\*/)
  | (?P<string>'(?:''|[^'])*')
  | (?P<parameter>\$\d+|%\d*\$?[sIL])
  | (?P<number>\d[\d.]*)
  | (?P<name>[A-Za-z_]\w*|"[^"]+")
  | (?P<cast>::)
  | (?P<named>=>|:=)
  | (?P<operator>[-+*/<>=~!@\#%^&|`?]+)
  | (?P<other>.)
""", re.S | re.X)
# Types that the grammar knows: they are those of pg_catalog.
_BUILT_IN = set('bigint int integer smallint numeric decimal real float boolean bit char character varchar interval time timestamp '
                'double'.split())
# What stands before a parenthesis and is no function that is looked up by its name, or is one that the grammar knows.
_NO_CALL = set('coalesce greatest least nullif extract exists row array cast any all some in values as on and or not when then else '
               'select where from join using over filter partition by order group having limit set distinct with into '
               'conflict within lateral only is returning union except intersect rows operator case end trim substring position '
               'overlay'.split())
_CONSTRUCTS = {'in': 'IN', 'like': 'LIKE', 'ilike': 'ILIKE', 'similar': 'SIMILAR TO', 'between': 'BETWEEN', 'nullif': 'NULLIF',
               'using': 'USING'}


def check(tree):
    for path in tree.having(*cpp.SUFFIXES):
        room = os.path.dirname(path)
        if room in QUALIFIED and not path.endswith('_test.cc'):
            yield from unqualified_texts(path, tree.text(path))
        if room in PINNED:
            yield from unpinned(path, tree.text(path))
        if room != TRUSTED and path.startswith(('extension/', 'worker/')):
            yield from changes_of_role(path, tree.text(path))
    for path in tree.having('.sql'):
        if path.startswith(INSTALL + '/'):
            yield from functions(path, tree.text(path))


def changes_of_role(path, text):
    code = cpp.split(text).with_literals
    for match in _CHANGE_OF_ROLE.finditer(code):
        yield Problem(path, line_of(text, match.start()), 'role', f'{match[0]}: only {TRUSTED} acts as another role (act_as.h)')


@functools.lru_cache(maxsize=None)
def unqualified_texts(path, text):
    """What is wrong with the SQL in the literals of a file."""
    return [Problem(path, line_of(text, position), rule, message)
            for position, sql in texts(text) for rule, message in unqualified(sql)]


def texts(text):
    """(position, SQL) of the literals of C++ that are SQL. Literals that follow each other are one."""
    code = cpp.split(text).with_literals
    for match in _ADJACENT.finditer(code):
        if code[max(0, match.start() - 80):match.start()].rstrip().endswith('#include'):
            continue
        sql = ''.join(eval(literal) for literal in re.findall(r'"(?:\\.|[^"\\\n])*"', match[0]))
        if _SQL.search(sql):
            yield match.start(), sql


def tokens(sql):
    """(kind, text) of what counts, keywords and names in small letters."""
    return [(match.lastgroup, match[0].lower() if match.lastgroup == 'name' else match[0])
            for match in _TOKEN.finditer(sql) if match.lastgroup != 'skip']


def unqualified(sql):
    """(rule, message) of each name in the SQL that search_path decides about."""
    found = tokens(sql)
    named = {text for index, (kind, text) in enumerate(found) if kind == 'name' and _is_cte(found, index)}
    depth, assigning = 0, None  # the depth of the parentheses of UPDATE ... SET while a column may be assigned
    for index, (kind, text) in enumerate(found):
        before = found[index - 1] if index else ('', '')
        after = found[index + 1] if index + 1 < len(found) else ('', '')
        depth += (text == '(') - (text == ')')
        if kind == 'name' and text == 'set':
            assigning = depth
        elif text in ('where', 'from', 'returning') and depth == assigning:
            assigning = None
        elif kind == 'operator' and text == '=' and depth == assigning and _is_assignment(found, index):
            pass
        elif kind == 'operator' and not _is_no_operator(found, index):
            yield 'operator', f'the operator {text} is looked up in search_path: write OPERATOR(pg_catalog.{text})'
        elif kind == 'cast':
            if after[1] not in _BUILT_IN and not _has_schema(found, index + 1):
                yield 'type', f'the type {after[1]} is looked up in search_path: write pg_catalog.{after[1]}'
        elif kind == 'name' and before[1] != '.':
            yield from _name(found, index, named)


def _name(found, index, named):
    kind, text = found[index]
    before = found[index - 1][1] if index else ''
    after = found[index + 1][1] if index + 1 < len(found) else ''
    if text in _CONSTRUCTS:
        yield 'construct', f'{_CONSTRUCTS[text]} looks up its operator in search_path: write it with OPERATOR(pg_catalog...)'
    elif text == 'from' and before == 'distinct':
        yield 'construct', 'IS DISTINCT FROM looks up its operator in search_path'
    elif text == 'case' and after != 'when':
        yield 'construct', 'CASE with an operand looks up its operator in search_path: write CASE WHEN'
    elif after == '(' and text not in _NO_CALL and before not in ('into', 'as') and not _is_column_list(found, index):
        yield 'call', f'the function {text} is looked up in search_path: write pg_catalog.{text}'
    elif before in ('from', 'join', 'update', 'table', 'into') and not _is_no_table(found, index, named):
        yield 'table', f'the table {text} is looked up in search_path: write its schema'


def _is_cte(found, index):
    if index == 0 or found[index - 1][1] not in ('with', ',', 'recursive'):
        return False
    following = [text for _, text in found[index + 1:]]
    if following[:1] == ['('] and ')' in following:  # its columns
        following = following[following.index(')') + 1:]
    return following[:2] == ['as', '(']


def _is_assignment(found, index):
    return found[index - 1][0] == 'name' and found[index - 2][1] in ('set', ',')


def _is_no_operator(found, index):
    """A star that stands for columns or rows, or the operator in OPERATOR(...)."""
    before, text = found[index - 1][1] if index else '', found[index][1]
    after = found[index + 1][1] if index + 1 < len(found) else ''
    return before == '.' or text == '*' and (before in ('select', '(', ',', '.') or after == ')' and before == '(')


def _has_schema(found, index):
    return len(found) > index + 1 and found[index + 1][1] == '.'


def _is_column_list(found, index):
    """The columns of INSERT INTO table (...), of ON CONFLICT (...), or the schema of what is called."""
    return index > 1 and found[index - 1][1] == '.'


def _is_no_table(found, index, named):
    text = found[index][1]
    update = index > 1 and found[index - 1][1] == 'update' and found[index - 2][1] in ('for', 'do')
    return update or _has_schema(found, index) or text in named or text in ('select', 'lateral', 'only', 'values') or \
        _inside_extract(found, index) or found[index - 1][1] == 'into' and index > 1 and found[index - 2][1] != 'insert'


def _inside_extract(found, index):
    return index > 3 and found[index - 1][1] == 'from' and found[index - 3][1] == '(' and found[index - 4][1] in ('extract', 'trim')


@functools.lru_cache(maxsize=None)
def unpinned(path, text):
    """Declarations of a SpiConnection that no FixedSearchPath follows."""
    code = cpp.split(text).code
    found = re.finditer(r'\bSpiConnection\s+(\w+)[^;]*;(\s*(?:const\s+)?FixedSearchPath\s+\w+\s*;)?', code)
    return [Problem(path, line_of(text, match.start()), 'search-path',
                    f'{match[1]} is a SpiConnection, and the next line is no FixedSearchPath')
            for match in found if match[2] is None]


@functools.lru_cache(maxsize=None)
def functions(path, text):
    """What is wrong with the functions that a part of the install script creates."""
    return list(_functions(path, text))


def _functions(path, text):
    for match in re.finditer(r'^CREATE (?:OR REPLACE )?(?:FUNCTION|PROCEDURE) (\S+?)\((.*?)(\$\$.*?\$\$;|;)$', text, re.M | re.S):
        name, head, line = match[1], match[2], line_of(text, match.start())
        if re.search(r'\bLANGUAGE C\b', match[0]):
            continue
        body = match[3].startswith('$$')
        if body and not re.search(rf'\b{PATH}\s', head):
            yield Problem(path, line, 'function', f'{name} has no "{PATH}"')
        elif not body and not re.search(r'\bRETURN\b|\bBEGIN ATOMIC\b', match[0]):
            yield Problem(path, line, 'function', f'{name} has no body that can be read')
        if body:
            yield from (Problem(path, line, rule, f'{name}: {message}') for rule, message in tables(match[3]))


def tables(body):
    """Tables without a schema in a body under PATH. Those of pg_catalog come before those of pg_temp."""
    for rule, message in unqualified(body.strip('$;')):
        if rule == 'table' and not re.match(r'the table (pg_\w+|unnest|generate_series|jsonb_\w+|current_\w+) ', message):
            yield rule, message
