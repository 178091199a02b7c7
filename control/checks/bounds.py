"""Each bound that a page names in its prose (a time, a size, a number of things) is one that the code has, or that of a service.

bounds.txt ties them: a value that a page names, and what of the code makes it true. When the constant changes, the page is found. What stands in a
fence or in backticks is an example or a value to type, and is left alone; the reference is made from the code, and the pages of figures from
the ledger."""
import re
from collections import namedtuple

from .references import without_code
from .tree import Problem

RULES = {
    'untied': 'a page names a bound that nothing is tied to',
    'changed': 'the code does not have a bound that a page names',
    'gone': 'a page does not name a bound that is tied',
    'form': 'a line ties nothing',
}
LIST = 'control/checks/bounds.txt'
_UNITS = ('us|ms|s|min|minutes?|seconds?|hours?|days?|kB|MB|GB|KiB|MiB|GiB|bytes|characters|digits|events|rows|messages|requests|workers|'
          'attributes|connections|lines|clusters|keys|seqs')
_BOUND = re.compile(rf'(?<![\w.,:/-])\d[\d,.]*(?: |-)?(?:{_UNITS})\b(?:/s)?')
_ELSEWHERE = {'docs/performance.md', 'docs/reliability.md', 'docs/models.md', 'docs/contributing.md'}
Bound = namedtuple('Bound', 'line page value file code')


def check(tree):
    bounds = []
    for number, line in enumerate(tree.text(LIST).splitlines(), 1):
        if not line.strip() or line.startswith('#'):
            continue
        form = re.fullmatch(r'(\S+): (.+?) => (\S+): (.+)', line)
        if form:
            bounds.append(Bound(number, *form.groups()))
        else:
            yield Problem(LIST, number, 'form', 'its form is PAGE: VALUE => FILE: CODE')
    for page in [name for name in tree.files if _is_checked(name)]:
        yield from _of_page(page, prose(tree.text(page)), [bound for bound in bounds if bound.page == page])
    for bound in bounds:
        if not _is_checked(bound.page) or bound.page not in tree.known:
            yield Problem(LIST, bound.line, 'gone', f'{bound.page} is no page whose bounds are checked')
        if bound.file != 'service' and (bound.file not in tree.known or not _has(tree.text(bound.file), bound.code)):
            yield Problem(LIST, bound.line, 'changed', f'{bound.file} does not have {bound.code!r}, to which {bound.value!r} of {bound.page} is tied')


def _has(text, code):
    """Whether it has just this code: 1000 is neither in 10000 nor in 1000'000."""
    return re.search(rf"(?<!\w){re.escape(code)}(?!['\w]|\.\d)", ' '.join(text.split())) is not None


def _is_checked(name):
    return name == 'README.md' or name.startswith('docs/') and name.endswith('.md') and not name.startswith('docs/reference/') and name not in _ELSEWHERE


def _of_page(page, text, bounds):
    tied = {bound.value for bound in bounds}
    named = {match[0]: match for match in _BOUND.finditer(text)}
    for bound in bounds:
        if bound.value not in named:
            yield Problem(LIST, bound.line, 'gone', f'{page} does not name {bound.value!r}')
    for value, match in named.items():
        if value not in tied:
            around = text[max(match.start() - 50, 0):match.end() + 20].strip()
            yield Problem(page, 0, 'untied', f'tie {value!r} in {LIST}: {around!r}')


def prose(text):
    """A page without code and the targets of links, its white space single spaces."""
    return ' '.join(re.sub(r'\[([^\]]*)\]\([^)]*\)', r'\1', without_code(text)).split())
