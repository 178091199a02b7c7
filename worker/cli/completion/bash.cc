#include <map>
#include <string>
#include <vector>

#include "worker/cli/completion/scripts.h"

namespace postbox::cli {
namespace {

constexpr char kBashBegin[] = R"(# Completion for bash, printed by `postbox completion bash`.
_postbox() {
  local IFS=$' \t\n' line=${COMP_LINE:0:COMP_POINT} words=() word
  # COMP_WORDS also divides at `=`, `:` and `@`; a word here ends at a space.
  for word in "${COMP_WORDS[@]:0:COMP_CWORD+1}"; do
    if [[ ${#words[@]} == 0 || $line == [[:space:]]* ]]; then
      words+=('')
      line=${line#"${line%%[![:space:]]*}"}
    fi
    [[ $line == "$word"* ]] || word=$line # the cursor is in this word
    words[-1]+=$word
    line=${line#"$word"}
  done

  local path=postbox
  for word in "${words[@]:1:${#words[@]}-2}"; do
    case "$path $word" in
)";

constexpr char kValues[] = R"(    esac
  done

  # What is to be completed: a value of $option, or a word of the subcommand.
  local whole=${words[-1]} option=${words[-2]} candidates='' commands='' options=''
  local part=$whole
  if [[ $whole == --*=* ]]; then
    option=${whole%%=*}
    part=${whole#*=}
  fi
  case "$path $option" in
)";

constexpr char kWords[] = R"(    *)
      case $path in
)";

constexpr char kBashEnd[] = R"(      esac
      candidates=$commands
      [[ -n $commands && $part != -* ]] || candidates=$options
      ;;
  esac
  mapfile -t COMPREPLY < <(compgen -P "${whole%"$part"}" -W "$candidates" -- "$part")
  # Without what stands before the part that readline replaces, $2.
  COMPREPLY=("${COMPREPLY[@]#"${whole%"$2"}"}")
}
complete -F _postbox postbox
)";

void AddBashPaths(const CommandWords& command, std::vector<std::string>* paths) {
  for (const CommandWords& below : command.commands) {
    paths->push_back("'" + Join(below.path) + "'");
    AddBashPaths(below, paths);
  }
}

// What is done for the value of an option. Readline itself completes files, with all of its
// quoting, if nothing is offered.
std::string ActionOf(const ArgumentWords& option) {
  switch (option.kind) {
    case ValueKind::kNone:
    case ValueKind::kText:
      return "return";
    case ValueKind::kChoice:
      return "candidates='" + Join(option.choices) + "'";
    case ValueKind::kFile:
      return "compopt -o default && return";
    case ValueKind::kNamedFile:
      return "[[ $part != *=* ]] || compopt -o default && return";
    case ValueKind::kDirectory:
      return "compopt -o dirnames && return";
  }
  return "";
}

using PatternsByAction = std::map<std::string, std::vector<std::string>>;

void AddValues(const CommandWords& command, PatternsByAction* values) {
  for (const ArgumentWords& option : command.options) {
    if (option.kind == ValueKind::kNone) continue;
    for (const std::string& name : option.names) {
      (*values)[ActionOf(option)].push_back("'" + Join(command.path) + " " + name + "'");
    }
  }
  for (const CommandWords& below : command.commands) AddValues(below, values);
}

std::string CaseOf(const std::string& indent, const std::vector<std::string>& patterns,
                   const std::string& action) {
  return indent + Join(patterns, " | \\\n  " + indent) + ") " + action + " ;;\n";
}

// In place of a positional argument, its choices are offered as subcommands are.
void AddWords(const CommandWords& command, std::string* script) {
  std::vector<std::string> commands;
  for (const CommandWords& below : command.commands) commands.push_back(below.path.back());
  for (const ArgumentWords& positional : command.positionals) {
    commands.insert(commands.end(), positional.choices.begin(), positional.choices.end());
  }
  std::vector<std::string> options;
  for (const ArgumentWords& option : command.options) {
    options.insert(options.end(), option.names.begin(), option.names.end());
  }
  *script += "        '" + Join(command.path) + "')\n";
  if (!commands.empty()) *script += "          commands='" + Join(commands) + "'\n";
  *script += "          options='" + Join(options) + "'\n          ;;\n";
  for (const CommandWords& below : command.commands) AddWords(below, script);
}

}  // namespace

std::string BashScript(const CommandWords& root) {
  std::vector<std::string> paths;
  AddBashPaths(root, &paths);
  std::string script = kBashBegin;
  script += CaseOf("      ", paths, "path+=\" $word\"") + kValues;
  PatternsByAction values;
  AddValues(root, &values);
  for (const auto& [action, patterns] : values) script += CaseOf("    ", patterns, action);
  script += kWords;
  AddWords(root, &script);
  return script + kBashEnd;
}

}  // namespace postbox::cli
