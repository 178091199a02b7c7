// What a shell has to know about the command line to complete it, taken from the description that
// CLI11 parses it with and makes --help of. A new subcommand or option is completed without a line
// of code.
#ifndef POSTBOX_WORKER_CLI_COMPLETION_WORDS_H_
#define POSTBOX_WORKER_CLI_COMPLETION_WORDS_H_

#include <CLI/CLI.hpp>
#include <string>
#include <vector>

namespace postbox::cli {

// What the value of an argument is.
enum class ValueKind {
  kNone,  // it is a flag
  kText,  // no shell can know it
  kChoice,
  kFile,
  kNamedFile,  // NAME=FILE
  kDirectory,
};

struct ArgumentWords {
  std::vector<std::string> names;  // with their dashes; a positional argument has one
  std::string description;
  std::string type;  // as --help shows it
  ValueKind kind = ValueKind::kNone;
  std::vector<std::string> choices;
  bool repeated = false;
};

struct CommandWords {
  std::vector<std::string> path;  // `postbox`, and the subcommands down to this one
  std::string description;
  std::vector<ArgumentWords> options;
  std::vector<ArgumentWords> positionals;
  std::vector<CommandWords> commands;
};

// Of a command and all below it; `above` is the path of the one that it belongs to. What --help
// does not show, since it has no group, is left out.
CommandWords WordsOf(const CLI::App& app, const std::vector<std::string>& above = {});

std::string Join(const std::vector<std::string>& words, const std::string& between = " ");

// `text` with a backslash before each of `characters`.
std::string Escaped(const std::string& text, const std::string& characters);

}  // namespace postbox::cli

#endif  // POSTBOX_WORKER_CLI_COMPLETION_WORDS_H_
