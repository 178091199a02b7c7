"""The checks of the source that `control/check` runs and that need no build.

Each check is a module with RULES, a table of what it looks for, and check(tree), which yields a Problem
for each place that breaks one of them. tests/checks/run plants a violation of every rule and sees it
reported; a rule without such a plant fails that test.
"""
