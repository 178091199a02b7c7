#include <string>
#include <vector>

#include "worker/cli/completion/scripts.h"

namespace postbox::cli {
namespace {

constexpr char kZshBegin[] = R"(#compdef postbox
# Completion for zsh, printed by `postbox completion zsh`.

_postbox_named_file() {
  compset -P 1 '*=' && _files
}
)";

// The first call of a file of $fpath has to complete. What is read by `source` is made known.
constexpr char kZshEnd[] = R"(
if [[ $funcstack[1] == _postbox ]]; then
  _postbox "$@"
else
  compdef _postbox postbox
fi
)";

constexpr char kState[] = R"(    ': :->command' \
    '*:: :->rest' && ret=0
  case $state in
    command)
      commands=(
)";

constexpr char kStateEnd[] = R"(      )
      _describe -t commands command commands && ret=0
      ;;
    rest) _call_function ret )";

std::string ZshQuoted(const std::string& text) {
  std::string quoted = "'";
  for (const char c : text) quoted += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return quoted + "'";
}

// `:MESSAGE:ACTION` of _arguments.
std::string ValueOf(const ArgumentWords& argument, const std::string& text) {
  const std::string message = ":" + Escaped(text, "\\:");
  switch (argument.kind) {
    case ValueKind::kNone:
      return "";
    case ValueKind::kText:
      return message + ": ";
    case ValueKind::kChoice:
      return message + ":(" + Join(argument.choices) + ")";
    case ValueKind::kFile:
      return message + ":_files";
    case ValueKind::kNamedFile:
      return message + ":_postbox_named_file";
    case ValueKind::kDirectory:
      return message + ":_directories";
  }
  return "";
}

void AddArguments(const CommandWords& command, std::string* script) {
  for (const ArgumentWords& option : command.options) {
    const std::string others =
        option.repeated ? "*" : "(" + Join(option.names) + ")";  // it is not offered again
    const std::string takes = option.kind == ValueKind::kNone ? "" : "=";
    for (const std::string& name : option.names) {
      *script += "    " +
                 ZshQuoted(others + name + takes + "[" + Escaped(option.description, "\\[]:") +
                           "]" + ValueOf(option, option.type)) +
                 " \\\n";
    }
  }
  for (const ArgumentWords& positional : command.positionals) {
    *script +=
        "    " +
        ZshQuoted((positional.repeated ? "*" : "") + ValueOf(positional, positional.names[0])) +
        " \\\n";
  }
}

// A function for each command, named after its path. What follows a subcommand is left to its own.
void AddFunction(const CommandWords& command, std::string* script) {
  const std::string name = "_" + Join(command.path, "_");
  *script += "\n" + name + "() {\n";
  if (command.commands.empty()) {
    *script += "  _arguments -S \\\n";
    AddArguments(command, script);
    script->erase(script->size() - 3);  // the last ` \`
    *script += "\n}\n";
    return;
  }
  *script +=
      "  local curcontext=$curcontext state line ret=1\n"
      "  local -a commands\n"
      "  local -A opt_args\n"
      "  _arguments -C -S \\\n";
  AddArguments(command, script);
  *script += kState;
  for (const CommandWords& below : command.commands) {
    *script += "        " + ZshQuoted(below.path.back() + ":" + below.description) + "\n";
  }
  *script += kStateEnd + name + "_$line[1] ;;\n  esac\n  return ret\n}\n";
  for (const CommandWords& below : command.commands) AddFunction(below, script);
}

}  // namespace

std::string ZshScript(const CommandWords& root) {
  std::string script = kZshBegin;
  AddFunction(root, &script);
  return script + kZshEnd;
}

}  // namespace postbox::cli
