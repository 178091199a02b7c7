#include <string>
#include <vector>

#include "worker/cli/completion/scripts.h"

namespace postbox::cli {
namespace {

constexpr char kFishBegin[] = R"(# Completion for fish, printed by `postbox completion fish`.

# Whether the subcommands on the command line are these.
function __postbox_at
    set -l path postbox
    for word in (commandline -opc)[2..-1]
        contains -- "$path $word" $__postbox_paths; and set path "$path $word"
    end
    test "$path" = "$argv"
end

complete -c postbox -f
)";

std::string FishQuoted(const std::string& text) { return "'" + Escaped(text, "\\'") + "'"; }

std::string ValueOf(const ArgumentWords& argument) {
  switch (argument.kind) {
    case ValueKind::kNone:
      return "";
    case ValueKind::kText:
      return " -x";
    case ValueKind::kChoice:
      return " -x -a " + FishQuoted(Join(argument.choices));
    case ValueKind::kFile:
    case ValueKind::kNamedFile:
      return " -r -F";
    case ValueKind::kDirectory:
      return " -x -a '(__fish_complete_directories)'";
  }
  return "";
}

void AddFishPaths(const CommandWords& command, std::vector<std::string>* paths) {
  for (const CommandWords& below : command.commands) {
    paths->push_back(FishQuoted(Join(below.path)));
    AddFishPaths(below, paths);
  }
}

void AddCommand(const CommandWords& command, std::string* script) {
  const std::string begin = "complete -c postbox -n '__postbox_at " + Join(command.path) + "'";
  *script += "\n";
  for (const CommandWords& below : command.commands) {
    *script += begin + " -a " + below.path.back() + " -d " + FishQuoted(below.description) + "\n";
  }
  for (const ArgumentWords& positional : command.positionals) {
    if (positional.kind != ValueKind::kChoice) continue;
    *script += begin + " -a " + FishQuoted(Join(positional.choices)) + "\n";
  }
  for (const ArgumentWords& option : command.options) {
    *script += begin;
    for (const std::string& name : option.names) {
      *script += name.starts_with("--") ? " -l " + name.substr(2) : " -s " + name.substr(1);
    }
    *script += ValueOf(option) + " -d " + FishQuoted(option.description) + "\n";
  }
  for (const CommandWords& below : command.commands) AddCommand(below, script);
}

}  // namespace

std::string FishScript(const CommandWords& root) {
  std::vector<std::string> paths;
  AddFishPaths(root, &paths);
  std::string script = kFishBegin;
  script += "set -g __postbox_paths " + Join(paths, " \\\n    ") + "\n";
  AddCommand(root, &script);
  return script;
}

}  // namespace postbox::cli
