"""python3 -m checks ROOT CHECK...: runs checks, prints what they find, and fails if they find something."""
import sys

from . import bounds, figures, layering, layout, names, page, pictures, qualified, references, sizes, tables, words
from .tree import Tree

CHECKS = {'layering': layering, 'names': names, 'sizes': sizes, 'references': references, 'tables': tables,
          'qualified': qualified, 'figures': figures, 'pictures': pictures, 'words': words, 'bounds': bounds, 'page': page, 'format': layout}


def main(root, *wanted):
    tree = Tree(root)
    found = False
    for name in wanted:
        problems = sorted(set(CHECKS[name].check(tree)))
        for problem in problems:
            assert problem.rule in CHECKS[name].RULES, problem
            print(f'check {name}: {problem}', file=sys.stderr)
        found = found or bool(problems)
        if name == 'layering':
            print(layering.describe(tree))
    return 1 if found else 0


if __name__ == '__main__':
    sys.exit(main(*sys.argv[1:]))
