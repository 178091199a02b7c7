"""Rows of Markdown tables are short: what is longer is read better as text below the table."""
import re

from .tree import Problem

RULES = {'row': 'a row of a table is too long'}
LIMIT = 200  # characters; a row has fewer

_DELIMITER = re.compile(r'\s*\|?\s*:?-+:?\s*(\|\s*:?-+:?\s*)*\|?\s*')


def check(tree):
    for path in tree.having('.md'):
        for number, row in rows(tree.text(path)):
            if len(row) >= LIMIT:
                yield Problem(path, number, 'row', f'a row of a table has {len(row)} characters, {LIMIT - 1} are allowed')


def rows(text):
    """(line number, line) of each row of each table, headings included. Code blocks hold no tables."""
    lines = text.splitlines()
    fenced, inside = '', False
    for index, line in enumerate(lines):
        fence = re.match(r'\s*(```+|~~~+)', line)
        if fence and (not fenced or fence[1].startswith(fenced)):
            fenced = '' if fenced else fence[1]
        following = lines[index + 1] if index + 1 < len(lines) else ''
        if fenced or '|' not in line:
            inside = False
        elif inside or line.lstrip().startswith('|') or ('|' in following and _DELIMITER.fullmatch(following)):
            inside = True
            yield index + 1, line.rstrip()
