"""What docs, comments, messages and scripts name exists: paths, files, links. No section is named by a number.

A path that begins with a folder of the top (worker/..., docs/...) is looked up wherever it stands. A file's name alone
(guard.h), or with the last of its folders, is looked up in Markdown and in comments: it has to be
beside the file that names it, or to be the only one of its name in the tree, or a header of the server or of a library.
A header of the standard library is written in <>. In Markdown it may be one whose text is there: the first line of a block names it.
Wildcards have to match something; of a path with a placeholder (tests/tap/X.pl, sql/install/NN_subject.sql) what comes
before the placeholder has to exist. Absolute paths are those that every machine has.
"""
import fnmatch
import functools
import os
import re

from . import cpp, rooms
from .tree import Problem, line_of

RULES = {
    'path': 'a path does not exist',
    'file-name': 'a file that is named does not exist, or more than one could be meant',
    'link': 'a Markdown link leads nowhere',
    'anchor': 'a Markdown link names a heading that its page does not have',
    'section': 'a section is named by its number, which moves',
    'absolute-path': 'an absolute path is named that other machines do not have',
}

_SKIPPED = ('tests/regress/expected/', 'tests/isolation/expected/')  # what our messages say, a second time
_ROOTS = re.compile(r'\$\{?(?:CMAKE_SOURCE_DIR|PROJECT_SOURCE_DIR|POSTBOX_ROOT|root)\}?/|\{ROOT\}/|(?<![\w.])\./')
_NAMED_FILE = re.compile(r'(?<![\w./$}{~*<-])((?:\.\.?/)*[A-Za-z0-9][\w-]*(?:[./][\w-]+)*\.'
                         r'(?:cc|h|sql|md|pl|pm|py|proto|cmake|spec|sh))'
                         r'(?![\w/*-]|\.\w)')
_SECTION = re.compile(r'\bsections?[\s#/*-]{1,12}\d|\u00a7', re.I)
# Not what follows a variable, a URL or a closing bracket, which is no absolute path.
_ABSOLUTE = re.compile(r"""(?<![\w./:$}{)\]>~*@+-])(?<!\+=)(?<![\w})\]]["'])/[a-z][\w-]*/[\w.$*{}<-][\w./$*{}<>-]*""")
# What every machine has, or may have; names of the API and of examples.
_ANYWHERE = re.compile(r'/(?:bin|dev|etc|proc|run|tmp|usr|var/(?:cache|lib|log|run)|path/to|host|topics|subscriptions|snapshots|v1|computeMetadata)(?:/|$)|'
                       r'/(?:var/)?postbox$|/(?:build|older)/|/var/tmp(?:/postbox\S*)?$')
# The words that stand for a name or a number, and in the name of an install script or a migration for a version.
_PLACEHOLDER = re.compile(r'[<>{}$]|(?<![A-Za-z0-9])(?:KIND|NAME|X)(?![A-Za-z0-9_])|^NN_|'
                          r'^postbox--(?:.*--)?(?:A|B|OLD|NEW|NEWEST|NEXT|VERSION)(?:--|\.sql|$)|^OLD--NEW\b')
_LINK = re.compile(r'\[(?:[^\[\]]|\[[^\]]*\])*\]\(\s*<?([^)\s>]+)>?[^)]*\)|^\s{0,3}\[[^\]^]+\]:\s*<?(\S+?)>?\s*$', re.M)


def check(tree):
    tops = sorted({name.split('/')[0] for name in tree.files if '/' in name}, key=len, reverse=True)
    rest = '|'.join(rf'(?<={re.escape(top[0])}){re.escape(top[1:])}' for top in tops)
    path = re.compile(rf'[{"".join(sorted({re.escape(top[0]) for top in tops}))}](?<![\w./$}}~@-].)(?:{rest})/[\w.*?{{}}$<>,/+-]*', re.S)
    for name in tree.ours():
        if name.startswith(_SKIPPED):
            continue
        text = tree.text(name)
        for line, rule, message in _patterns(text):
            yield Problem(name, line, rule, message)
        for line, said in _paths(text, path):
            if not _exists(tree, said):
                yield Problem(name, line, 'path', f'{said} does not exist')
        written = _written(text) if name.endswith('.md') else ()
        for line, said in _file_names(name, text):
            if said in written:
                continue
            complaint = _unknown(tree, name, said)
            if complaint:
                yield Problem(name, line, 'file-name', complaint)
        if name.endswith('.md'):
            yield from _links(tree, name, text)


# What a file says is found once for the same text; whether it exists is asked each time.


@functools.lru_cache(maxsize=None)
def _patterns(text):
    """(line, rule, message) of what no file may say."""
    sections = [(line_of(text, match.start()), 'section',
                 f'name the heading or the file, not its number: {" ".join(match[0].split())}')
                for match in _SECTION.finditer(text)]
    return sections + [(line_of(text, match.start()), 'absolute-path', f'other machines do not have {match[0]}')
                       for match in _ABSOLUTE.finditer(text) if not _ANYWHERE.match(match[0])]


# Paths from the top --------------------------------------------------------------------------------------------------


@functools.lru_cache(maxsize=None)
def _paths(text, pattern):
    """(line, path) of each path from the top."""
    text = _ROOTS.sub(lambda match: ' ' * len(match[0]), text)
    return [(line_of(text, match.start()), path) for match in pattern.finditer(text) for path in _expand(_trim(match[0]))]


def _trim(path):
    """Without what belongs to the sentence or to the script around it."""
    while path:
        last, opening = path[-1], {'}': '{', '>': '<'}.get(path[-1])
        if last not in '.,:;?/' and not (opening and path.count(last) > path.count(opening)):
            break
        path = path[:-1]
    return path


def _expand(path):
    """{a,b} as the shell expands it."""
    match = re.search(r'\{([^{}]*,[^{}]*)\}', path)
    if not match:
        return [path.split(',')[0]]
    return [whole for choice in match[1].split(',')
            for whole in _expand(path[:match.start()] + choice + path[match.end():])]


def _exists(tree, path):
    if path in tree.known or path in tree.folders:
        return True
    sure = []
    for component in path.split('/'):
        if _is_placeholder(component):
            return '/'.join(sure) in tree.folders
        sure.append(component)
    return bool(re.search(r'[*?]', path)) and bool(fnmatch.filter([*tree.known, *tree.folders], path))


def _is_placeholder(component):
    """NAME, X.pl, NN_subject.sql, postbox--A--B.sql, <name>.cc, {name}, $name"""
    return bool(_PLACEHOLDER.search(component)) and '*' not in component


# Files by their name -------------------------------------------------------------------------------------------------


@functools.lru_cache(maxsize=None)
def _file_names(name, text):
    """(line, file) of each file that prose names."""
    return [(line_of(text, start + match.start()), match[1])
            for start, prose in _prose(name, text) for match in _NAMED_FILE.finditer(prose)]


@functools.lru_cache(maxsize=None)
def _written(text):
    """The files that a document tells to write: the first line of a block, a comment, is the name."""
    return frozenset(re.findall(r'^```\w+\n(?:#|//|--) (\S+)\n', text, re.M))


def _prose(name, text):
    """(position, text) of the comments of a file; a Markdown file is all prose."""
    if name.endswith('.md'):
        return [(0, text)]
    if name.endswith((*cpp.SUFFIXES, '.proto', '.js')):
        return cpp.split(text).comments
    mark = r'--' if name.endswith('.sql') else r'#'
    comment = rf'{mark}(?<!\S{mark})[^\n]*'
    if name.endswith('.py') or re.match(r'#!.*python', text):
        comment += r'|"""(?:.|\n)*?"""'
    return [(match.start(), match[0]) for match in re.finditer(comment, text, re.M)]


def _unknown(tree, name, said):
    """What is wrong with the file name `said` in the file `name`; '' if nothing is."""
    beside = os.path.normpath(os.path.join(os.path.dirname(name), said))
    if beside in tree.known or said in tree.known or _outside(said):
        return ''
    if said.split('/')[0] in tree.folders:
        return ''  # a path from the top: looked up already
    found = _by_base_name(tree).get(os.path.basename(said), [])
    found = [path for path in found if path == said or path.endswith('/' + said)]
    if len(found) > 1:
        return f'{said} could be any of {", ".join(found)}'
    return '' if found else f'{said} does not exist'


@functools.lru_cache(maxsize=None)
def _by_base_name(tree):
    found = {}
    for path in tree.files:
        found.setdefault(os.path.basename(path), []).append(path)
    return found


def _outside(said):
    """A header of a library, what protoc makes, an install script of a release, or a placeholder.

    Not one of the standard library, whose name could be that of a file of ours that is gone.
    """
    return said.endswith('.h') and rooms.world_of(said) not in (None, 'standard') or said.endswith(('.pb.h', '.pb.cc')) or \
        re.fullmatch(r'postbox--[\w.-]+\.sql', said) is not None or _is_placeholder(os.path.splitext(said)[0])


# Links ---------------------------------------------------------------------------------------------------------------


def _links(tree, name, text):
    for line, target in _targets(text):
        page, _, anchor = target.partition('#')
        path = os.path.normpath(os.path.join(os.path.dirname(name), page)) if page else name
        if path not in tree.known and path not in tree.folders:
            yield Problem(name, line, 'link', f'{target} leads nowhere')
        elif anchor and (not path.endswith('.md') or anchor not in anchors(tree.text(path))):
            yield Problem(name, line, 'anchor', f'{path} has no heading #{anchor}')


@functools.lru_cache(maxsize=None)
def _targets(text):
    """(line, target) of the links of a page that do not lead to the net."""
    text = without_code(text)
    return [(line_of(text, match.start(match.lastindex)), match[match.lastindex])
            for match in _LINK.finditer(text) if not re.match(r'[a-z]+:', match[match.lastindex])]


def without_code(text):
    """A page of Markdown whose fences, and code in backticks, are blanks."""
    def blank(match):
        return re.sub(r'[^\n]', ' ', match[0])
    text = re.sub(r'^[ \t]*(```+|~~~+).*?^[ \t]*\1[ \t]*$', blank, text, flags=re.M | re.S)
    return re.sub(r'(`+)(?!`).+?(?<!`)\1(?!`)', lambda match: match[1] + blank(match)[2 * len(match[1]):] + match[1], text)


@functools.lru_cache(maxsize=None)
def anchors(text):
    """The anchors of a page, as GitHub makes them of its headings."""
    found = set(re.findall(r'<a\s+(?:id|name)="([^"]+)"', text))
    code_free = re.sub(r'^[ \t]*(```+|~~~+).*?^[ \t]*\1[ \t]*$', '', text, flags=re.M | re.S)
    for heading in re.findall(r'^ {0,3}#{1,6}\s+(.*?)\s*#*$', code_free, re.M):
        heading = re.sub(r'\[([^\]]*)\]\([^)]*\)', r'\1', heading)
        slug = re.sub(r'[^\w\- ]', '', heading.lower()).replace(' ', '-')
        number, unique = 0, slug
        while unique in found:
            number += 1
            unique = f'{slug}-{number}'
        found.add(unique)
    return found
