"""Who may include whom: the table in rooms.py, for <...> and "...", through every chain of includes."""
import collections
import functools
import os
from dataclasses import dataclass, field

from . import cpp, rooms
from .tree import Problem

RULES = {
    'unknown-folder': 'a C++ file lies in a folder that is no room',
    'unknown-suffix': 'a C++ file is named otherwise than .cc or .h, so that nothing checks it',
    'unknown-header': 'an include is neither in the tree nor in the table',
    'room': 'a room includes a room that it may not',
    'world': 'a room includes a header from outside that it may not',
    'mixed': 'a file sees both the server and gRPC, protobuf or abseil',
    'not-plain': 'a header of a room with gRPC is included where only its plain headers may be',
    'test-only': 'what is not a test includes GoogleTest',
    'file-circle': 'files include each other in a circle',
    'room-circle': 'rooms include each other in a circle',
}
OTHER_SUFFIXES = ('.c', '.cpp', '.cxx', '.c++', '.C', '.hpp', '.hxx', '.hh', '.H', '.inc', '.inl', '.ipp', '.tcc')


@dataclass
class File:
    """A file and what it includes: files of the tree and (world, header) pairs from outside, each with its line."""
    path: str
    room: str
    files: dict = field(default_factory=dict)
    outside: dict = field(default_factory=dict)
    worlds: set = field(default_factory=set)  # of what is outside


def check(tree):
    graph, problems = read(tree)
    yield from problems
    for file in graph.values():
        yield from _direct(file, graph)
    for file in graph.values():
        yield from _reached(file, graph)
    yield from _file_circles(graph)
    yield from _room_circles(graph)


# Reading -------------------------------------------------------------------------------------------------------------


def read(tree):
    """The files of all rooms with their includes, and the problems of reading them."""
    problems = [Problem(path, 0, 'unknown-suffix', 'C++ files are named .cc or .h') for path in tree.files
                if path.endswith(OTHER_SUFFIXES)]
    graph = {}
    for path in tree.having(*cpp.SUFFIXES):
        room = rooms.room_of(path)
        if room is None:
            problems.append(Problem(path, 0, 'unknown-folder', f'{os.path.dirname(path) or "the top folder"} is no room '
                                    '(control/checks/rooms.py)'))
        file = graph[path] = File(path, room)
        for include, name, candidates in _meant(path, tree.text(path)):
            problem = _resolve(tree, file, include, name, candidates)
            if problem:
                problems.append(problem)
    return graph, problems


@functools.lru_cache(maxsize=None)
def _meant(path, text):
    """(include, its name, the files that it may mean) of each include: beside the file for "...", then from the top, as the compiler does."""
    found = []
    for include in cpp.includes(text):
        name = os.path.normpath(include.name)
        beside = [os.path.normpath(os.path.join(os.path.dirname(path), name))] if include.quoted else []
        found.append((include, name, [*beside, name] if include.literal else []))
    return found


def _resolve(tree, file, include, name, candidates):
    """Finds the file in the tree or outside."""
    for path in candidates:
        if path in tree.known:
            file.files.setdefault(path, include.line)
            return None if path.endswith('.h') else Problem(
                file.path, include.line, 'unknown-suffix', f'includes {path}, which is no header')
    world = _outside(tree, name) if include.literal else None
    if world is None:
        return Problem(file.path, include.line, 'unknown-header',
                       f'includes {include.name}, which control/checks/rooms.py does not know')
    file.outside.setdefault((world, name), include.line)
    file.worlds.add(world)
    return None


def _outside(tree, name):
    """The world of a header that is not in the tree, 'generated' for one that protoc makes, or None."""
    proto = rooms.generated_from(name)
    if proto in tree.known:
        return 'generated'
    return rooms.world_of(name)


# One include ---------------------------------------------------------------------------------------------------------


def _direct(file, graph):
    """What the table says about a file's own includes."""
    if file.room is None:
        return
    for other, line in file.files.items():
        room = graph[other].room if other in graph else None
        if room and not rooms.may_include(file.room, room):
            yield Problem(file.path, line, 'room', f'includes {other}: {file.room} may not include {room}')
    rules = rooms.rules_of(file.room)
    for (world, header), line in file.outside.items():
        if world == 'generated' and rooms.PROTO not in rules.includes:
            yield Problem(file.path, line, 'room', f'includes {header}: {file.room} may not include {rooms.PROTO}')
        elif world not in ('standard', 'generated', 'GoogleTest', *rules.worlds):
            yield Problem(file.path, line, 'world', f'includes {header}: {file.room} may not include {world} headers')


# Chains of includes --------------------------------------------------------------------------------------------------


def _reached(file, graph):
    """What the table says about everything that a file sees."""
    chains = _chains(file.path, graph)
    server = _first(chains, graph, ('server',))
    network = _first(chains, graph, (*rooms.NETWORK, 'generated'))
    if server and network:
        yield Problem(file.path, 0, 'mixed', f'sees both the server ({server}) and gRPC ({network})')
    test = _first(chains, graph, ('GoogleTest',))
    if test and file.path.endswith('.cc') and not file.path.endswith('_test.cc') and file.room not in rooms.WORKSHOPS:
        yield Problem(file.path, 0, 'test-only', f'is not a test but includes {test}')
    if file.room is not None:
        yield from _not_plain(file, graph)


def _chains(start, graph):
    """For each file that `start` sees, itself included, the shortest chain of files to it."""
    chains = {start: (start,)}
    waiting = collections.deque([start])
    while waiting:
        path = waiting.popleft()
        for other in graph[path].files:
            if other in graph and other not in chains:
                chains[other] = (*chains[path], other)
                waiting.append(other)
    return chains


def _first(chains, graph, worlds):
    """The shortest chain to a header of `worlds`, spelled; '' if there is none."""
    for path, chain in chains.items():  # shortest first
        if graph[path].worlds.isdisjoint(worlds):
            continue
        for world, header in graph[path].outside:
            if world in worlds:
                return ' -> '.join((*chain, f'<{header}>'))
    return ''


def _not_plain(file, graph):
    for other, line in file.files.items():
        if other not in graph or graph[other].room not in rooms.rules_of(file.room).plain_of:
            continue
        chain = _first(_chains(other, graph), graph, (*rooms.NETWORK, 'generated'))
        if chain:
            yield Problem(file.path, line, 'not-plain', f'includes {other}, which is not plain: {chain}')


# Circles -------------------------------------------------------------------------------------------------------------


def _circles(arrows):
    """One circle for each group of nodes that reach each other, as a list that ends with its first node."""
    done = set()
    for start in sorted(arrows):
        if start in done:
            continue
        circle = _back_to(start, arrows)
        if circle:
            done.update(circle)
            yield circle


def _back_to(start, arrows):
    """The shortest way from `start` over at least one arrow back to it."""
    waiting, before = collections.deque([start]), {}
    while waiting:
        node = waiting.popleft()
        for other in sorted(arrows.get(node, ())):
            if other == start:
                way = [node, start]
                while way[0] != start:
                    way.insert(0, before[way[0]])
                return way
            if other not in before:
                before[other] = node
                waiting.append(other)
    return None


def _file_circles(graph):
    for circle in _circles({path: set(file.files) for path, file in graph.items()}):
        yield Problem(circle[0], graph[circle[0]].files[circle[1]], 'file-circle', ' -> '.join(circle))


def _room_circles(graph):
    arrows = collections.defaultdict(set)
    example = {}
    for file in graph.values():
        for other, line in file.files.items():
            if other not in graph or None in (file.room, graph[other].room):
                continue
            pair = (file.room, graph[other].room)
            if pair[0] != pair[1]:
                arrows[pair[0]].add(pair[1])
                example.setdefault(pair, (file.path, line))
    for circle in _circles(arrows):
        yield Problem(*example[tuple(circle[:2])], 'room-circle', ' -> '.join(circle))


# The table of rooms and arrows ---------------------------------------------------------------------------------------


def describe(tree):
    """The arrows that there are, a line for each room: its folder, the rooms and the worlds that it includes."""
    graph, _ = read(tree)
    arrows, worlds = collections.defaultdict(set), collections.defaultdict(set)
    for file in graph.values():
        arrows[file.room].update(graph[other].room for other in file.files if other in graph)
        arrows[file.room].update(rooms.PROTO for world, _ in file.outside if world == 'generated')
        worlds[file.room].update(world for world, _ in file.outside)
    lines = [('room', 'includes', 'from outside')]
    for room in [*rooms.ROOMS, *rooms.WORKSHOPS]:
        if room in arrows:
            lines.append((room, ', '.join(sorted(arrows[room] - {room, None})) or '-',
                          ', '.join(sorted(worlds[room] - {'standard', 'generated', 'GoogleTest'})) or '-'))
    widths = [max(len(line[column]) for line in lines) for column in (0, 1)]
    return '\n'.join(f'{a:{widths[0]}}  {b:{widths[1]}}  {c}' for a, b, c in lines)
