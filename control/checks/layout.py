"""What clang-format does not see: white space at the end of a line, and lines of C++ that are too long.

clang-format leaves comments as they are (.clang-format). A line of one word, such as a URL, cannot be broken. What
tests are expected to print is as psql prints it.
"""
import functools
import re

from . import cpp
from .tree import Problem

RULES = {
    'trailing-space': 'a line ends with white space',
    'long-line': 'a line of C++ is too long',
}
LINE_LIMIT = 100  # characters, not bytes; ColumnLimit of .clang-format

_EXPECTED = re.compile(r'tests/\w+/expected/')
_ONE_WORD = re.compile(r'\s*(?://+|/?\*+)?\s*\S+\s*')


def check(tree):
    for path in tree.ours():
        if not _EXPECTED.match(path):
            yield from _lines(path, tree.text(path))


@functools.lru_cache(maxsize=None)
def _lines(path, text):
    """What is wrong with the lines of a file."""
    found = []
    for number, line in enumerate(text.split('\n'), 1):
        if line != line.rstrip():
            found.append(Problem(path, number, 'trailing-space', 'ends with white space'))
        if path.endswith(cpp.SUFFIXES) and len(line) > LINE_LIMIT and not _ONE_WORD.fullmatch(line):
            found.append(Problem(path, number, 'long-line', f'has {len(line)} characters, {LINE_LIMIT} are allowed'))
    return found
