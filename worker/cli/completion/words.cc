#include "worker/cli/completion/words.h"

namespace postbox::cli {
namespace {

// CLI11 has what an option accepts only as text, behind its type: `TEXT:{text,json}`.
std::vector<std::string> ChoicesOf(const std::string& type) {
  const size_t begin = type.find(":{");
  if (begin == std::string::npos) return {};
  const size_t end = type.find('}', begin);
  return CLI::detail::split(type.substr(begin + 2, end - begin - 2), ',');
}

ValueKind KindOf(const ArgumentWords& words) {
  if (!words.choices.empty()) return ValueKind::kChoice;
  const std::string type = words.type.substr(0, words.type.find(':'));
  if (type == "FILE") return ValueKind::kFile;
  if (type == "DIR") return ValueKind::kDirectory;
  return type.ends_with("=FILE") ? ValueKind::kNamedFile : ValueKind::kText;
}

ArgumentWords ArgumentOf(const CLI::Option& option) {
  ArgumentWords words;
  for (const std::string& name : option.get_snames()) words.names.push_back("-" + name);
  for (const std::string& name : option.get_lnames()) words.names.push_back("--" + name);
  if (words.names.empty()) words.names.push_back(option.get_name(true));
  words.description = option.get_description();
  if (option.get_items_expected_max() == 0) return words;
  words.type = option.get_type_name();
  words.choices = ChoicesOf(words.type);
  words.kind = KindOf(words);
  words.repeated = option.get_expected_max() >= CLI::detail::expected_max_vector_size;
  return words;
}

// Those of a command, or of a group of its options. A group has its own --help, which it never
// shows.
void AddArguments(const CLI::App& app, CommandWords* command) {
  for (const CLI::Option* option : app.get_options()) {
    if (option->get_group().empty()) continue;
    if (app.get_name().empty() && option == app.get_help_ptr()) continue;
    (option->nonpositional() ? command->options : command->positionals)
        .push_back(ArgumentOf(*option));
  }
}

}  // namespace

CommandWords WordsOf(const CLI::App& app, const std::vector<std::string>& above) {
  CommandWords command;
  command.path = above;
  command.path.push_back(app.get_name());
  command.description = app.get_description();
  AddArguments(app, &command);
  for (const CLI::App* below : app.get_subcommands([](const CLI::App*) { return true; })) {
    if (below->get_group().empty()) continue;
    if (below->get_name().empty()) {  // a group of options
      AddArguments(*below, &command);
    } else {
      command.commands.push_back(WordsOf(*below, command.path));
    }
  }
  return command;
}

std::string Join(const std::vector<std::string>& words, const std::string& between) {
  std::string text;
  for (const std::string& word : words) text += (text.empty() ? "" : between) + word;
  return text;
}

std::string Escaped(const std::string& text, const std::string& characters) {
  std::string escaped;
  for (const char c : text) {
    if (characters.find(c) != std::string::npos) escaped += '\\';
    escaped += c;
  }
  return escaped;
}

}  // namespace postbox::cli
