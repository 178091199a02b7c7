"""The files of the repository, and what a check reports about them."""
import bisect
import functools
import re
import subprocess
from dataclasses import dataclass
from pathlib import Path

# What others wrote, what a program wrote, and the install scripts of releases, which never change: nothing
# in them is ours to keep short or to word.
NOT_OURS = re.compile(r'.*/package-lock\.json|proto/google/|(.*/)?postbox--[\d.]+\.sql$')


@dataclass(frozen=True, order=True)
class Problem:
    """A place that breaks a rule. `line` 0 means the whole file."""
    path: str
    line: int
    rule: str
    message: str

    def __str__(self):
        place = f'{self.path}:{self.line}' if self.line else self.path
        return f'{place}: {self.message} [{self.rule}]'


class Tree:
    """The files that git tracks below `root`, and those that it would track if they were added; or the files whose `texts` are given."""

    def __init__(self, root, texts=None):
        self.root = Path(root)
        self.files = self._listed() if texts is None else sorted(texts)
        self.known = set(self.files)
        self.texts = {} if texts is None else texts
        if not self.files:
            raise SystemExit(f'check: git lists no file in {self.root}')

    def _listed(self):
        listed = subprocess.run(['git', 'ls-files', '-z', '-co', '--exclude-standard'], cwd=self.root,
                                check=True, stdout=subprocess.PIPE).stdout.decode().split('\0')
        return sorted({name for name in listed if name and (self.root / name).is_file()})

    def having(self, *suffixes):
        """The files whose names end with one of `suffixes`. A check of nothing is an error."""
        found = [name for name in self.files if name.endswith(suffixes)]
        if not found:
            raise SystemExit(f'check: {self.root} holds no {" or ".join(suffixes)}')
        return found

    def ours(self):
        """The text files that we wrote."""
        return [name for name in self.files if not NOT_OURS.match(name) and self.text(name) is not None]

    @functools.cached_property
    def folders(self):
        """Every folder that holds a file, at any depth."""
        return {'.', *(name[:match.start()] for name in self.files for match in re.finditer('/', name))}

    def text(self, name):
        """What the file says; None if it is not text."""
        if name not in self.texts:
            try:
                self.texts[name] = (self.root / name).read_text(encoding='utf-8')
            except UnicodeDecodeError:
                self.texts[name] = None
        return self.texts[name]


@functools.lru_cache(maxsize=None)
def _newlines(text):
    return [match.start() for match in re.finditer('\n', text)]


def line_of(text, position):
    """The number of the line, from 1, that `position` is in."""
    return bisect.bisect_left(_newlines(text), position) + 1
