"""The scanner of C++ and SQL that control/check names and sizes rest on, on what it has to know."""
import sys
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / 'control'))
from checks import cpp, references, sizes, tables


def found(text, kind='function'):
    """(name, length) of every block of a kind."""
    return [(block.name, block.length) for block in cpp.blocks(text) if block.kind == kind]


class Functions(unittest.TestCase):
    def expect(self, text, *expected):
        self.assertEqual(found(text), list(expected))

    def test_a_function_counts_from_its_declaration_to_its_last_brace(self):
        self.expect('// not this\nint\nF(int a,\n  int b) {\n}\nvoid G() {}\n', ('F', 4), ('G', 1))

    def test_a_lambda_belongs_to_the_function_that_it_stands_in(self):
        self.expect('void F() {\n  Do([&](int a) {\n    if (a) {\n    }\n  });\n}\n', ('F', 6))

    def test_a_lambda_at_namespace_level_is_a_function(self):
        self.expect('const auto kF = [](int a) -> int {\n  return a;\n};\n', ('kF', 3))

    def test_a_macro_that_makes_a_function_is_one(self):
        self.expect('POSTBOX_FUNCTION(name) {\n  return 1;\n}\nTEST_F(A, B) {\n}\n',
                    ('POSTBOX_FUNCTION(name)', 3), ('TEST_F(A, B)', 2))

    def test_a_constructor_counts_with_its_initialisers(self):
        self.expect('A::A(int a)\n    : a_(a),\n      b_{a, 1},\n      c_<int>{} {\n  Do();\n}\nB::B() : b_{} {}\n',
                    ('A::A', 6), ('B::B', 1))

    def test_members_operators_and_conversions(self):
        self.expect('class A {\n public:\n  A() : a_(1) {}\n  ~A() {}\n  bool operator()(int) const {\n  }\n'
                    '  bool operator<(const A&) const { return {}; }\n  explicit operator bool() const {}\n};\n'
                    'A& A::operator=(A&& other) noexcept {\n}\n',
                    ('A', 1), ('~A', 1), ('operator()', 2), ('operator<', 1), ('operator bool', 1), ('A::operator=', 2))

    def test_templates_attributes_trailing_types_and_structs_returned(self):
        self.expect('template <class A, std::enable_if_t<(B<A>), int> = 0>\n[[nodiscard]] auto F(A a) -> std::map<int, A> {\n}\n'
                    'struct T* G() {\n}\nenum E H(struct T t) {\n}\nextern "C" Datum f(PG_FUNCTION_ARGS) {\n}\n',
                    ('F', 3), ('G', 2), ('H', 2), ('f', 2))

    def test_what_is_in_namespaces_and_extern_c_is_seen(self):
        self.expect('namespace a::b {\nnamespace {\nextern "C" {\nvoid F() {\n}\n}\n}\n}\n', ('F', 2))

    def test_data_is_no_function(self):
        self.expect('const int kA[] = {\n  1,\n};\nstatic const struct config_enum_entry kB[] = {\n{"a", 1}};\n'
                    'std::function<void(int)> c{nullptr};\nenum D {\n  kD,\n};\n')

    def test_braces_in_literals_comments_and_numbers_do_not_count(self):
        self.expect('void F() {\n  char a = \'{\'; int b = 1\'000; auto c = "{\\"{"; auto d = R"x({{")x";  // {\n  /* { */\n}\n',
                    ('F', 4))

    def test_branches_of_the_preprocessor_that_open_one_function(self):
        self.expect('#if A\nvoid F() {\n#else\nvoid F(int) {\n#endif\n}\nvoid G() {\n#ifdef B\n  if (a) {\n  }\n#endif\n}\n',
                    ('F', 5), ('G', 6))

    def test_a_macro_of_many_lines_is_measured(self):
        self.assertEqual(found('#define A(b) \\\n  {         \\\n    b\n#define C 1\n', 'macro'), [('A', 3)])

    def test_braces_that_do_not_match_are_an_error(self):
        for text in ('void F() {\n', '}\n', 'namespace {\nvoid F() {\n}\n'):
            self.assertRaises(ValueError, cpp.blocks, text)

    def test_functions_of_sql(self):
        self.assertEqual(list(sizes.sql_functions(
            "CREATE FUNCTION postbox.a() RETURNS int LANGUAGE c AS 'MODULE_PATHNAME';\n"
            'CREATE OR REPLACE FUNCTION b(x int)\nRETURNS void AS $body$\n  -- $body\n$body$ LANGUAGE sql;\nDO $$\n$$;\n'
            'CREATE PROCEDURE c()\nBEGIN ATOMIC\n  SELECT 1;\nEND;\n')), [('b', 2, 5), ('DO', 6, 7), ('c', 8, 11)])


class Classes(unittest.TestCase):
    def expect(self, members, fields, methods):
        block, = (block for block in cpp.blocks(f'class A : B {{\n{members}\n}};\n') if block.name == 'A')
        self.assertEqual((block.is_class, block.fields, block.methods), (True, fields, methods))

    def test_fields(self):
        self.expect('public:\n int a_; const std::map<int, B> b_; int c_ = F(1), d_{2}; std::function<void(int)> e_;\n'
                    'private: volatile bool f_ = false; int g_[3] = {1, 2}; struct { int x; } h_;', 8, 0)

    def test_constants_types_and_friends_are_no_fields(self):
        self.expect('static constexpr int kA = 1; static int b_; using C = int; enum class D { kE, kF }; friend class G;\n'
                    'struct H { int i; }; class J; typedef int K; static_assert(true);', 0, 0)

    def test_methods(self):
        self.expect('int F() const; void G(int a) { Do(); } virtual bool H() = 0; bool operator==(const A&) const = default;\n'
                    'template <class T>\n [[nodiscard]] T J(T t); explicit operator bool() const { return true; } static int K();', 0, 7)

    def test_constructors_and_what_is_deleted_are_no_methods(self):
        self.expect('A() = default; explicit A(int a) : a_(a) {} ~A(); A(const A&) = delete; A& operator=(const A&) = delete; int a_;', 1, 0)

    def test_a_struct_is_no_class(self):
        self.assertEqual([block.is_class for block in cpp.blocks('struct A { int a; };\nenum class B { kA };\n')], [False, False])


class Classes(unittest.TestCase):
    def expect(self, text, *expected):
        self.assertEqual([block.name for block in cpp.blocks(text)
                          if block.kind == 'class' and block.at_namespace_level], list(expected))

    def test_classes_structs_unions_and_enums_have_names(self):
        self.expect('class A final : public B<int(int)> {};\nstruct alignas(64) C {};\nenum class D : int { kD };\nunion E {};\n'
                    'class ABSL_LOCKABLE F {};\ntypedef struct G {} G;\ntemplate <class T>\nclass H {};\n',
                    'A', 'C', 'D', 'E', 'F', 'G', 'H')

    def test_neither_forward_declarations_nor_nested_classes(self):
        self.expect('class A;\nstruct B {\n  struct C {};\n  enum D { kD };\n};\nvoid F() {\n  struct E {};\n}\n', 'B')

    def test_what_is_defined_later_or_specialised_is_not_a_name_of_its_own(self):
        self.expect('struct A::B {};\ntemplate <>\nstruct C<int> {};\nstruct {\n} d;\n', 'A::B', 'C<', '')


class Includes(unittest.TestCase):
    def test_every_spelling_of_an_include_is_seen(self):
        text = ('#include <a.h>\n  #  include "b"  // why\n#include/**/"c.h"\n#if 0\n#include_next <d.h>\n#endif\n'
                '/* x */ #include \\\n  <e.h>\n#include MACRO\n// #include <no.h>\nauto a = "\\\n#include <f.h>";\n')
        self.assertEqual([include.name for include in cpp.includes(text)][:6], ['a.h', 'b', 'c.h', 'd.h', 'e.h', 'MACRO'])
        self.assertNotIn('no.h', [include.name for include in cpp.includes(text)])


class Pages(unittest.TestCase):
    def test_anchors_are_those_of_github(self):
        self.assertEqual(references.anchors('# A `b_c`: d, e!\n## [F](g) h\n## F h\n```\n# no\n```\n'),
                         {'a-b_c-d-e', 'f-h', 'f-h-1'})

    def test_rows_of_tables(self):
        text = '| a |\n|---|\n| b |\n\nc | no\n\nd | e\n--|--\nf | g\n```\n| no |\n```\n'
        self.assertEqual([number for number, _ in tables.rows(text)], [1, 2, 3, 7, 8, 9])


if __name__ == '__main__':
    unittest.main()
