"""Functions stay under 60 lines, files under 600. A class has at most 15 fields and 25 methods.

A function's length counts from the first line of its declaration to the line of its last brace. Lambdas count
as part of the function that they stand in; tables of data are no functions.
"""
import ast
import functools
import re

from . import cpp
from .tree import Problem, line_of

RULES = {
    'function': 'a function is too long',
    'file': 'a file is too long',
    'class': 'a class has too many fields or methods',
    'unreadable': 'the braces of a file do not match',
}
FUNCTION_LIMIT = 60  # lines; a function has fewer
FILE_LIMIT = 600
FIELD_LIMIT = 16
METHOD_LIMIT = 26
WHOLE_FILE = '(file)'

_FILES = ('.cc', '.h', '.py', '.sh', '.sql', '.pl', '.pm', '.js', '.spec', '.proto', '.cmake', 'CMakeLists.txt')


def check(tree):
    for path, what, line, length in _measured(tree):
        if length is None:
            yield Problem(path, 0, 'unreadable', what)
            continue
        rule, limit, unit = _rule_of(what)
        if length >= limit:
            yield Problem(path, line, rule, f'{what} has {length}{unit}, {limit - 1} are allowed')


def _rule_of(what):
    """(rule, limit, unit) of something that is measured."""
    if what.startswith('class '):
        return 'class', FIELD_LIMIT if what.endswith(' fields') else METHOD_LIMIT, ''
    if what == WHOLE_FILE:
        return 'file', FILE_LIMIT, ' lines'
    return 'function', FUNCTION_LIMIT, ' lines'


def _measured(tree):
    """(path, what, line, length) of every file and function; length None: the file cannot be read."""
    for path in tree.ours():
        yield from _measured_file(path, tree.text(path))


@functools.lru_cache(maxsize=None)
def _measured_file(path, text):
    found = []
    script = text.startswith('#!')
    if script or path.endswith(_FILES):
        found.append((path, WHOLE_FILE, 0, len(text.splitlines())))
    try:
        found += [(path, name, first, last - first + 1) for name, first, last in _functions(path, text)]
        if path.endswith(cpp.SUFFIXES):
            found += [(path, f'class {block.name} {what}', block.line, getattr(block, what)) for block in cpp.blocks(text)
                      if block.is_class for what in ('fields', 'methods')]
    except (ValueError, SyntaxError) as error:
        found.append((path, str(error), 0, None))
    return found


def _functions(path, text):
    """(name, first line, last line) of the functions of a file, by its language."""
    interpreter = text.split('\n', 1)[0] if text.startswith('#!') else ''
    if path.endswith(cpp.SUFFIXES):
        return [(block.name, block.line, block.end) for block in cpp.blocks(text)
                if block.kind in ('function', 'macro')]
    if path.endswith('.py') or 'python' in interpreter:
        return [(node.name, node.lineno, node.end_lineno) for node in _statements(text)
                if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))]
    if path.startswith('sql/install/'):
        return list(sql_functions(text))
    if path.endswith(('.pl', '.pm')) or 'perl' in interpreter:
        return list(_perl_functions(text))
    if path.endswith(('.sh', '.js')) or re.search(r'sh$|node', interpreter):
        return list(_script_functions(text))
    return []


def _statements(text):
    """The statements of a module of Python, at any depth; no expression has a function in it."""
    found = [ast.parse(text)]
    for node in found:  # which grows meanwhile
        found += [child for child in ast.iter_child_nodes(node) if isinstance(child, (ast.stmt, ast.excepthandler, ast.match_case))]
    return found


def sql_functions(text):
    """Functions, procedures and DO blocks, from CREATE to the end of the body."""
    code = re.sub(r'--[^\n]*', lambda match: ' ' * len(match[0]), text)
    starts = list(re.finditer(r'^[ \t]*(?:CREATE\s+(?:OR\s+REPLACE\s+)?(?:FUNCTION|PROCEDURE)\s+([\w.]+)|(DO)\b)', code,
                              re.M | re.I))
    for start in starts:
        opening = re.compile(r'\$\w*\$|;|\bBEGIN\s+ATOMIC\b', re.I).search(code, start.end())
        if not opening or opening[0] == ';':
            continue  # a function in C has no body here
        end = code.find(opening[0], opening.end()) if opening[0][0] == '$' else \
            code.upper().find('\nEND;', opening.end()) + 1
        if end <= 0:
            raise ValueError(f'line {line_of(code, start.start())}: a body has no end')
        first = line_of(code, start.end())
        yield start[1] or start[2], first, line_of(code, end)


def _script_functions(text):
    """Functions of shell and JavaScript that begin and end in the first column."""
    start = re.compile(r'^(?:(?:async )?function )?(\w+)\s*(?:\([^\n]*\))?\s*\{$')
    name, first = None, 0
    for number, line in enumerate(text.splitlines(), 1):
        match = start.match(line)
        if match:
            name, first = match[1], number
        elif line.startswith('}') and name:
            yield name, first, number
            name = None


def _perl_functions(text):
    """Subs of Perl, named or not, whose brace stands at the end of their line or alone on the next one.

    A sub ends where a line with its indentation begins with a brace. One without a name is called after what stands before it.
    """
    code = text.splitlines()
    start = re.compile(r'(\s*)([^#\s].*?)??\bsub\b[ \t]*(\w*)[ \t]*(?:\([^()]*\))?[ \t]*(\{?)\s*$')
    for first, line in enumerate(code):
        match = start.match(line)
        if not match or not match[4] and not re.match(r'\s*\{\s*$', ''.join(code[first + 1:first + 2])):
            continue
        name = match[3] or re.sub(r'[\s=>,(]+$', '', match[2] or '') or 'sub'
        closing = match[1] + '}'
        body = first + (1 if match[4] else 2)
        last = next((number for number in range(body, len(code)) if code[number].startswith(closing)), None)
        if last is None:
            raise ValueError(f'line {first + 1}: sub {name} has no end')
        yield name, first + 1, last + 1
