"""The text of a COMMENT, taken apart: a description, a line for each argument, and the lines Rights, Errors, Since and Example.

A line that begins with two spaces goes on with the line before it. Text is plain, but for code in backticks."""

import dataclasses
import re

INTERNAL = "Internal: "  # how the COMMENT begins of what users do not call or read
FORM = "Another form of "  # of a function that is described with the form that has the same names of arguments
PARTS = ("Rights", "Errors", "Since", "Example")


class BadComment(Exception):
    pass


@dataclasses.dataclass
class Comment:
    description: list  # paragraphs
    arguments: dict  # name -> text
    parts: dict  # one of PARTS -> text; of Example with its lines


def parse(text, arguments=()):
    """`arguments`: the names that may begin a line."""
    comment = Comment([], {}, {})
    place = None  # (where, name) of the line that may go on
    for line in text.strip().splitlines():
        if line.startswith("  ") and place is not None:
            into, name = place
            into[name] += ("\n" if name == "Example" else " ") + line[2:].rstrip()
            continue
        head, colon, rest = line.partition(":")
        if colon and head in PARTS:
            place = (comment.parts, head)
        elif colon and head in arguments and not comment.parts:
            place = (comment.arguments, head)
        else:
            _add_prose(comment, line)
            place = None
            continue
        into, name = place
        if name in into:
            raise BadComment(f"it has two lines {name!r}")
        into[name] = rest.strip()
    comment.parts = {name: value.strip("\n") for name, value in comment.parts.items()}
    return comment


def _add_prose(comment, line):
    """A line of the description. Behind the arguments there is none."""
    if not line.strip():
        comment.description.append("")
    elif comment.arguments or comment.parts:
        raise BadComment(f"it goes on behind its arguments: {line!r}; a line that goes on begins with two spaces")
    elif comment.description and comment.description[-1]:
        comment.description[-1] += " " + line.strip()
    else:
        comment.description[-1:] = [line.strip()]


def problems(comment, arguments, needed):
    """What the COMMENT of a function lacks."""
    if not any(comment.description):
        yield "it does not say what the object is"
    for name in arguments:
        if not comment.arguments.get(name):
            yield f"it has no line for argument {name}"
    for name in needed:
        if not comment.parts.get(name):
            yield f"it has no line {name!r}"
    if "Since" in comment.parts and not re.fullmatch(r"\d+\.\d+\.\d+", comment.parts["Since"]):
        yield f"Since is a release such as 0.2.0, and not {comment.parts['Since']!r}"
