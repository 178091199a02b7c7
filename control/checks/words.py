"""Words that what users read does not have: Markdown, SQL, and the texts and comments of C++. docs/contributing.md says how Postbox is written."""
import re

from . import cpp
from .tree import Problem, line_of

RULES = {'word': 'a word that makes a sentence hard to read'}
# Subjects that are no things, and words that the manual of PostgreSQL does not have.
# `A room of its own` is a separate room; `of its own table` is good.
_WORDS = re.compile(r'(?<!`)\b(?:whoever|whomever|somebody|nobody|someone|no\s+one|everybody|anybody|anew|in\s+vain|mends?|mended|mending)\b|'
                    r'\bof\s+(?:its|their|his|your)(?:\s+very)?\s+own\b(?=\W*$|[^\w\s`]|\s+(?:which|that|is|has|by|and|or|each|in|for|at|than|with|made|publishes|takes|this)\b)', re.I | re.M)


def check(tree):
    for name in tree.ours():
        if name.startswith(('tests/', 'bench/')):
            continue
        for start, text in _read(name, tree.text(name)):
            for match in _WORDS.finditer(text):
                yield Problem(name, line_of(tree.text(name), start + match.start()), 'word', f'{match[0]!r}: name the thing, or the term of the field')


def _read(name, text):
    """(position, text) of what is read by people."""
    if name.endswith(('.md', '.sql', '.h2m')):
        return [(0, text)]
    if not name.endswith(cpp.SUFFIXES) or name.endswith('_test.cc'):
        return []
    source = cpp.split(text)
    literals = re.finditer(r'"(?:[^"\\\n]|\\.)*"', source.with_literals)
    return [*source.comments, *((match.start(), match[0]) for match in literals)]
