"""One name, one meaning: base names of headers and names of classes are unique within a module.

A module is what is linked together (rooms.MODULES). A name counts if a class, struct, union or enum of it is defined at
namespace level, whatever the namespace. An anonymous namespace makes no difference: two structs of one name in
two files link, but a reader still has to know which one is meant. `using NAME =` in a header counts as well.
Not counted: forward declarations, what is defined inside a class or a function, specialisations of a template,
`using` in a .cc file, which is a local shorthand, and tests (*_test.cc), which are in no module.
"""
import collections
import os

from . import cpp, rooms
from .tree import Problem

RULES = {
    'header': 'two headers of a module have one base name',
    'class': 'two classes of a module have one name',
    'unreadable': 'the braces of a file do not match',
}


def check(tree):
    files = [path for path in tree.having(*cpp.SUFFIXES) if not path.endswith('_test.cc')]
    defined, problems = _definitions(tree, files)
    yield from problems
    for module, folders in rooms.MODULES.items():
        inside = dict.fromkeys(path for path in files if rooms.room_of(path) in folders)
        yield from _headers(module, inside)
        yield from _classes(module, [entry for entry in defined if entry[0] in inside])


def _definitions(tree, files):
    """(path, line, name) of each class at namespace level, and the files that cannot be read."""
    defined, problems = [], []
    for path in files:
        try:
            found = cpp.blocks(tree.text(path))
        except ValueError as error:
            problems.append(Problem(path, 0, 'unreadable', str(error)))
            continue
        kinds = ('class', 'alias') if path.endswith('.h') else ('class',)
        defined += [(path, block.line, block.name) for block in found
                    if block.kind in kinds and block.at_namespace_level and block.name.isidentifier()]
    return defined, problems


def _headers(module, files):
    seen = collections.defaultdict(list)
    for path in files:
        if path.endswith('.h'):
            seen[os.path.basename(path)].append(path)
    for first, *others in seen.values():
        for path in others:
            yield Problem(path, 0, 'header', f'has the base name of {first}; both are in {module}')


def _classes(module, defined):
    seen = collections.defaultdict(dict)
    for path, line, name in defined:
        seen[name].setdefault(path, line)
    for name, places in seen.items():
        (first, first_line), *others = places.items()
        for path, line in others:
            yield Problem(path, line, 'class', f'{name} is defined in {first}:{first_line} too; both are in {module}')
