#!/usr/bin/env python3
"""dockerfile.py FILE TARGET PART: a part of a stage of FILE as a shell script, for a machine without Docker. PART is `steps`, what builds the
image, to be run as root in a clean root that has the packages in /tmp/postbox/packages, or `start`, what a container of it runs.

It knows the instructions that control/postbox.Dockerfile uses, and refuses others."""
import json
import shlex
import sys
from pathlib import Path


def instructions(text):
    lines = [line for line in text.splitlines() if not line.lstrip().startswith('#')]
    for line in '\n'.join(lines).replace('\\\n', ' ').splitlines():
        if line.strip():
            name, _, rest = line.strip().partition(' ')
            yield name.upper(), rest.strip()


def stages(text):
    """Name of a stage -> (the stage or image that it is made from, its instructions)."""
    found, current = {}, None
    for name, rest in instructions(text):
        if name == 'FROM':
            base, _, alias = rest.split()
            current = []
            found[alias] = (base, current)
        elif current is not None:
            current.append((name, rest))
    return found


def all_of(found, target):
    base, own = found[target]
    return (all_of(found, base) if base in found else []) + own


def script(todo, part):
    lines, user, command, entry = ['set -eu'], 'root', None, []
    for name, rest in todo:
        if name in ('ARG', 'ENV'):
            lines += [f'export {word}' for word in rest.split()]
        elif name == 'RUN' and part == 'steps':
            lines.append(rest)
        elif name == 'USER':
            user = rest
        elif name == 'ENTRYPOINT':
            entry = json.loads(rest)
        elif name == 'CMD':
            command = rest
        elif name == 'COPY':
            if rest != '*.deb /tmp/postbox/packages/':
                raise SystemExit(f'dockerfile.py: COPY {rest}: only the packages are here')
        elif name not in ('RUN', 'VOLUME', 'EXPOSE', 'STOPSIGNAL'):
            raise SystemExit(f'dockerfile.py: {name} is not known')
    if part == 'start':
        words = ['sh', '-c', command] if not command.startswith('[') else [*entry, *json.loads(command)]
        lines.append(f'exec setpriv --reuid {user} --regid "$(id -g {user})" --init-groups {shlex.join(words)}')
    return '\n'.join(lines) + '\n'


def main(file, target, part):
    sys.stdout.write(script(all_of(stages(Path(file).read_text(encoding='utf-8')), target), part))


if __name__ == '__main__':
    main(*sys.argv[1:])
