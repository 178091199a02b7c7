"""What `valgrind --tool=callgrind` has counted in a process: instructions, by object file, and calls of functions."""

import re

_COUNT = re.compile(r"[+*\-0-9]")


class Profile:
    def __init__(self, text):
        self.instructions = 0
        self.of_object = {}  # instructions in the code of each object file itself, without what it called
        self.calls = {}  # by name of the function that was called
        self._names = {}
        self._read(text)

    def instructions_of(self, suffix):
        return sum(count for name, count in self.of_object.items() if name.endswith(suffix))

    def calls_of(self, names):
        """A function has other names where a clone of it is called: malloc'2 is malloc within malloc."""
        return sum(count for name, count in self.calls.items() if name.partition("'")[0].partition("@")[0] in names)

    def _read(self, text):
        current = called = None
        of_callee = False  # the next line of costs is that of a call
        for line in text.splitlines():
            key, equals, value = line.partition("=")
            if equals and key == "ob":
                current = self._name("ob", value)
            elif equals and key == "cob":
                self._name("ob", value)
            elif equals and key == "fn":
                self._name("fn", value)
            elif equals and key == "cfn":
                called = self._name("fn", value)
            elif equals and key == "calls":
                self.calls[called] = self.calls.get(called, 0) + int(value.split()[0])
                of_callee = True
            elif not equals and _COUNT.match(line):
                count = int(line.split()[1]) if " " in line else 0
                if not of_callee:
                    self.instructions += count
                    self.of_object[current] = self.of_object.get(current, 0) + count
                of_callee = False

    def _name(self, kind, text):
        """A name is written once, after its number: `(12) malloc`, and is `(12)` from then on."""
        number, _, name = text.partition(" ")
        if name:
            self._names[kind, number] = name
        return self._names.get((kind, number), text)
