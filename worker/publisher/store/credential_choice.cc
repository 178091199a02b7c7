#include "worker/publisher/store/credential_choice.h"

#include "extension/base/spi.h"

namespace postbox::publisher {

std::map<std::string, CredentialChoice> LoadCredentialChoices() {
  const uint64 rows =
      Run("SELECT u.credential, c.kind, c.file, k.secret "
          "FROM (SELECT DISTINCT p.credential FROM postbox.publication p) u "
          "LEFT JOIN postbox.credential c ON c.name OPERATOR(pg_catalog.=) u.credential "
          "LEFT JOIN postbox.credential_secret k ON k.credential OPERATOR(pg_catalog.=) c.name");
  std::map<std::string, CredentialChoice> choices;
  for (uint64 row = 0; row < rows; ++row) {
    const std::string name = TextColumn(row, 1);
    const std::string kind = TextColumn(row, 2);
    CredentialChoice choice;
    if (name.empty()) {
      // That of the environment.
    } else if (kind.empty()) {
      choice.problem = "credential \"" + name + "\" does not exist";
    } else if (kind == "file") {
      choice.spec.file = TextColumn(row, 3);
    } else if (kind == "metadata") {
      choice.spec.metadata_server = true;
    } else if (kind == "key") {
      choice.spec.json = TextColumn(row, 4);
      if (choice.spec.json.empty()) {
        choice.problem = "credential \"" + name +
                         "\" has no secret; a superuser gives it one with postbox.alter_credential";
      }
    }
    choices.emplace(name, std::move(choice));
  }
  return choices;
}

}  // namespace postbox::publisher
