"""The ledger of benches, and the limits of what is counted."""
import json
import subprocess
import sys
import tempfile
import unittest
import unittest.mock
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / 'bench/lib'), str(ROOT / 'tests/e2e/lib')]
import callgrind
import claims
import ledger
import limits
import pages


def line(value=1000, unit='events/s', ratio=None, ratio_to=None, target=None, machine='here', **more):
    figure = {'bench': 'planted', 'case': 'it', 'value': value, 'unit': unit, 'ratio': ratio, 'ratio_to': ratio_to, 'target': target, **more}
    return ledger.line_of(figure, '0123456789', machine, '2026-01-01')


class Comparison(unittest.TestCase):
    def failing(self, recorded, new):
        return [failed for _, failed in ledger.comparison(recorded, [new])]

    def test_a_ratio_below_85_percent_of_the_best_there_ever_was_fails(self):
        recorded = [line(ratio=1.0, ratio_to='other'), line(ratio=2.0, ratio_to='other'), line(ratio=1.0, ratio_to='other')]
        self.assertEqual(self.failing(recorded, line(ratio=1.71, ratio_to='other')), [False])
        self.assertEqual(self.failing(recorded, line(ratio=1.69, ratio_to='other')), [True])

    def test_a_figure_that_should_be_small_fails_when_it_has_grown(self):
        for unit in ('ms', 'bytes/event', 'us/event', 'MiB', 'KiB'):
            self.assertEqual(self.failing([line(100, unit)], line(110, unit)), [False], unit)
            self.assertEqual(self.failing([line(100, unit)], line(120, unit)), [True], unit)
            self.assertEqual(self.failing([line(100, unit)], line(50, unit)), [False], unit)

    def test_so_does_a_ratio_of_what_should_be_small(self):
        recorded = [line(1.4, 'ms', 1.0, 'other')]
        self.assertEqual(self.failing(recorded, line(9.0, 'ms', 1.1, 'other')), [False])
        self.assertEqual(self.failing(recorded, line(0.9, 'ms', 1.3, 'other')), [True])

    def test_next_to_nothing_may_double_where_the_target_is_far_away(self):
        recorded = [line(0.005, 'bytes/event', target='<= 2')]
        self.assertEqual(self.failing(recorded, line(0.01, 'bytes/event', target='<= 2')), [False])
        self.assertEqual(self.failing(recorded, line(0.06, 'bytes/event', target='<= 2')), [True])

    def test_nothing_that_was_measured_is_not_divided_by(self):
        self.assertEqual(self.failing([line(0, 'ms')], line(0, 'ms')), [False])
        self.assertEqual(self.failing([line(0, 'ms')], line(5, 'ms')), [True])

    def test_a_value_is_compared_on_the_same_machine_only_and_a_ratio_on_all(self):
        self.assertEqual(self.failing([line(1, 'ms', machine='there')], line(5, 'ms')), [False])
        self.assertEqual(self.failing([line(ratio=2.0, ratio_to='other', machine='there')], line(ratio=1.0, ratio_to='other')), [True])

    def test_ratios_to_two_others_are_two_figures(self):
        self.assertEqual(self.failing([line(ratio=20.0, ratio_to='slow')], line(ratio=1.0, ratio_to='fast')), [False])

    def test_a_rate_without_a_ratio_and_a_measure_of_others_are_not_compared(self):
        self.assertEqual(self.failing([line(1000)], line(10)), [])
        of_others = line(20, 'ms', case='bare')
        recorded = [line(10, 'ms', case='bare'), line(10, 'ms', 1.0, 'bare')]
        self.assertEqual(self.failing(recorded, of_others), [])

    def test_what_others_take_is_never_compared(self):
        self.assertEqual(self.failing([line(10, 'us/event')], line(20, 'us/event', of_others=True)), [])

    def test_the_text_has_the_best_its_commit_and_the_target(self):
        (text, _), = ledger.comparison([line(ratio=2.0, ratio_to='other')], [line(ratio=1.0, ratio_to='other', target='>= 0.9')])
        for part in ('1 of other', 'best 2', '0123456789', '0.50 of it', 'target >= 0.9', 'BELOW'):
            self.assertIn(part, text)

    def test_a_target_is_of_the_ratio_unless_it_has_a_unit(self):
        self.assertEqual(ledger.target_of(line(ratio=1.0, ratio_to='other', target='>= 0.9')), (True, '>=', 0.9))
        self.assertEqual(ledger.target_of(line(ratio=1.0, ratio_to='other', target='<= 2 ms')), (False, '<=', 2.0))
        self.assertEqual(ledger.target_of(line(target='<= 150')), (False, '<=', 150.0))
        self.assertIsNone(ledger.target_of(line(target='0')))


class Commit(unittest.TestCase):
    def setUp(self):
        directory = tempfile.TemporaryDirectory()
        self.addCleanup(directory.cleanup)
        self.root = Path(directory.name)
        (self.root / 'bench').mkdir()
        for name in ('source.cc', ledger.LEDGER):
            (self.root / name).write_text('')
        self.git('init', '-q')
        self.git('add', '.')
        self.git('-c', 'user.name=a', '-c', 'user.email=a@b', 'commit', '-qm', 'first')

    def git(self, *arguments):
        subprocess.run(['git', *arguments], cwd=self.root, check=True)

    def test_a_clean_tree_is_its_commit(self):
        self.assertRegex(ledger.commit(self.root), '^[0-9a-f]{10,}$')

    def test_a_tree_with_a_change_or_a_new_file_is_refused(self):
        (self.root / 'source.cc').write_text('changed')
        with self.assertRaisesRegex(ledger.Dirty, 'source.cc'):
            ledger.commit(self.root)
        self.git('checkout', '-q', 'source.cc')
        (self.root / 'new.cc').write_text('')
        with self.assertRaisesRegex(ledger.Dirty, 'new.cc'):
            ledger.commit(self.root)

    def test_what_recording_writes_does_not_count_so_that_benches_can_be_recorded_one_by_one(self):
        ledger.append([line()], self.root)
        self.assertEqual(ledger.load(self.root), [line()])
        ledger.commit(self.root)


class Pages(unittest.TestCase):
    PAGE = f'before\n{pages.BEGIN}\nold\n{pages.END}\nafter\n'

    def test_a_row_says_the_newest_figure_its_date_and_commit_and_the_best(self):
        lines = [line(ratio=2.0, ratio_to='other'), {**line(500, ratio=1.5, ratio_to='other', target='>= 0.9'), 'commit': 'abcdef0123'}]
        page = pages.rendered(lines, self.PAGE)[pages.PAGE]
        self.assertIn('| it | 500 events/s | 1.5 of other | 2 (0123456) | >= 0.9 | 2026-01-01 abcdef0 |', page)
        self.assertTrue(page.startswith('before\n') and page.endswith('after\n') and 'old' not in page)

    def test_more_than_five_ratios_have_a_plot_for_light_and_dark_pages(self):
        lines = [line(ratio=0.5, ratio_to='other', case=f'case <{number}>') for number in range(5)]
        self.assertEqual(set(pages.rendered(lines, self.PAGE)), {pages.PAGE})
        files = pages.rendered([*lines, line(ratio=0.5, ratio_to='other')], self.PAGE)
        self.assertEqual(set(files), {pages.PAGE, f'{pages.FOLDER}/planted-light.svg', f'{pages.FOLDER}/planted-dark.svg'})
        self.assertIn('case &lt;0&gt;', files[f'{pages.FOLDER}/planted-dark.svg'])

    def test_of_more_than_five_figures_the_values_of_the_commonest_unit_have_a_plot(self):
        lines = [*(line(unit='events', case=f'case {number}') for number in range(3)), *(line(1, unit, case=unit) for unit in ('KiB', 'ms'))]
        self.assertEqual(set(pages.rendered(lines, self.PAGE)), {pages.PAGE})
        plot = pages.rendered([*lines, line(1, 's', case='another')], self.PAGE)[f'{pages.FOLDER}/planted-light.svg']
        self.assertIn('case 2', plot)
        self.assertNotIn('KiB', plot)

    def test_processor_time_has_a_row_and_a_bar_for_each_way_and_its_share_stands_beside_what_it_is_a_share_of(self):
        def cost(case, value, **more):
            return {**line(value, 'us/event', case=case, **more), 'bench': 'cost'}
        lines = [cost('publish, Postbox: worker', 4), cost('publish, Postbox: all', 4, ratio=0.05, ratio_to='publish, Go, 200 a claim: all'),
                 cost('publish, Go, 200 a claim: backend', 30, of_others=True), cost('publish, Go, 200 a claim: client', 50, of_others=True),
                 cost('publish, Go, 200 a claim: all', 80, of_others=True), cost('emit, Postbox: backend', 9), cost('emit, Postbox: all', 9)]
        files = pages.rendered(lines, self.PAGE)
        for row in ('| publish | Postbox |  | 4 | 4 us/event |  |  | 2026-01-01 0123456 |',
                    '| publish | Go, 200 a claim | 30 | 50 | 80 us/event | 0.05 of it | this | 2026-01-01 0123456 |',
                    '| emit | Postbox | 9 |  | 9 us/event |  |  | 2026-01-01 0123456 |'):
            self.assertIn(row, files[pages.PAGE])
        for theme in ('light', 'dark'):
            self.assertIn('>80</text>', files[f'{pages.FOLDER}/cost-{theme}.svg'])

    def test_a_page_without_the_markers_is_refused(self):
        with self.assertRaises(ValueError):
            pages.rendered([], 'nothing')


class Claims(unittest.TestCase):
    CLAIM = claims.Claim('page.md', 'one is faster', 'planted', 'one', '>', 'other')

    def problems(self, text='Here one is faster.', one=2.0, other=1.0):
        lines = [line(ratio=9.0, ratio_to='old', case='one'), line(ratio=one, ratio_to='it', case='one'), line(ratio=other, ratio_to='it', case='other')]
        with unittest.mock.patch.object(claims, 'CLAIMS', [self.CLAIM]):
            return [problem for _, problem in claims.problems(lines, lambda name: text)]

    def test_a_claim_holds_while_the_newest_ratio_bears_it_out(self):
        self.assertEqual(self.problems(), [])
        self.assertIn('has the ratio 1 and not one > 1', self.problems(one=1.0)[0])

    def test_a_claim_goes_with_its_sentence(self):
        self.assertIn('it lacks the sentence', self.problems(text='Here one is slower.')[0])


class Runs(unittest.TestCase):
    # In a process of its own: to load the benches moves standard output.
    SCRIPT = f"""
import sys
import types
sys.path.insert(0, {str(ROOT / 'bench/lib')!r})
import main

class Recorder:
    def take(self, name, figures):
        taken.append(len(figures))

def planted(report, smoke):
    report.line('it', 1, 'us/event')
    if failure:
        raise failure

module = types.ModuleType('planted')
module.planted = planted
sys.modules['planted'] = module
main.BENCHES['planted'] = 'planted'
for failure in (None, main.bed.Incomplete('no Go'), main.Failure('lost'), main.Interrupted('by a signal')):
    taken = []
    try:
        print(repr(main.run('planted', False, {{}}, Recorder())), taken, file=main.bed.FIGURES)
    except main.Interrupted:
        print('ended', taken, file=main.bed.FIGURES)
try:
    main.bed.wait_until('it waits', lambda: (_ for _ in ()).throw(main.Interrupted('by a signal')), 1)
except main.Interrupted:
    print('nothing waits on', file=main.bed.FIGURES)
"""

    def test_a_failing_bench_records_nothing_one_that_lacks_others_does_and_a_signal_ends_all(self):
        done = subprocess.run([sys.executable, '-B', '-c', self.SCRIPT], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, check=True)
        told = [line for line in done.stdout.splitlines() if not line.startswith('{')]
        self.assertEqual(told, ['None [1]', "'planted: no Go' [1]", "'planted: lost' []", 'ended []', 'nothing waits on'])


class Limits(unittest.TestCase):
    def test_what_grows_by_a_fifth_is_above_its_limit_whatever_its_size(self):
        for count in (0.3, 1, 1000, 1e6):
            self.assertEqual(limits.compared({'it': count}, {'it': 1.1 * count}), ([], []))
            failures, _ = limits.compared({'it': count}, {'it': 1.2 * count})
            self.assertEqual(len(failures), 1)

    def test_what_falls_by_more_than_a_fifth_is_said(self):
        self.assertEqual(limits.compared({'it': 100}, {'it': 81}), ([], []))
        _, notes = limits.compared({'it': 100}, {'it': 79})
        self.assertEqual(len(notes), 1)

    def test_a_count_that_is_missing_or_new_fails(self):
        failures, _ = limits.compared({'one': 1}, {'other': 1})
        self.assertEqual(len(failures), 2)

    def test_the_limits_are_of_every_case_that_is_counted(self):
        for subject, counts in json.loads((ROOT / 'bench/limits.json').read_text()).items():
            for case in ('read a log', 'read a table', 'emit', 'emit_changes of a COPY', 'apply', 'apply a batch'):
                for what in ('instructions', 'instructions of Postbox', 'allocations', 'buffers', 'WAL', 'index entries'):
                    self.assertIn(f'{case}: {what}', counts, subject)


class Callgrind(unittest.TestCase):
    TEXT = '''version: 1
positions: line
events: Ir

ob=(1) /usr/lib/postbox.so
fl=(1) a.cc
fn=(1) Emit
0 100
cob=(2) /usr/lib/libc.so.6
cfi=(2) malloc.c
cfn=(2) malloc
calls=3 0
0 60
cfn=(3) malloc'2
calls=1 0
0 1

ob=(2)
fl=(2)
fn=(2)
0 60
fn=(4) free
+0 7

totals: 167
'''

    def test_costs_of_calls_are_not_counted_twice_and_names_are_written_once(self):
        profile = callgrind.Profile(self.TEXT)
        self.assertEqual(profile.instructions, 167)
        self.assertEqual(profile.instructions_of('/postbox.so'), 100)
        self.assertEqual(profile.instructions_of('/libc.so.6'), 67)
        self.assertEqual(profile.calls_of({'malloc'}), 4)
        self.assertEqual(profile.calls_of({'free'}), 0)


if __name__ == '__main__':
    unittest.main()
