// create_credential and its kind: who publications and subscriptions are at Pub/Sub.
//
// A secret is written into postbox.credential_secret and goes nowhere else from here:
//  - It is a text, and parsed here. A jsonb argument that is no JSON would be quoted in an error
//    before the function is called.
//  - Errors name what is missing, and never quote the document. The statement that had it is left
//    out of the server's log (WithoutStatement), and of pg_stat_activity from here on.
//  - auto_explain would log the parameters of nested statements, so it is switched off meanwhile.
// What the server logs before or after the function, it logs: docs/security.md says which settings.
//
// To make a credential makes the server read files (kind file, external accounts), so all of
// it is for superusers, whatever EXECUTE is granted.
#include "extension/registry/credential.h"

#include "extension/base/arguments.h"
#include "extension/base/relation.h"
#include "extension/base/spi.h"
#include "extension/registry/registered_names.h"
#include "extension/trust/act_as.h"
#include "extension/trust/registrar.h"

extern "C" {
#include <tcop/tcopprot.h>
}

namespace postbox {
namespace {

// The documents that Google makes have two or three kilobytes. A row must fit on a page: the TOAST
// table has no row security (sql/install/tables/62_credential.sql).
constexpr int kMaxSecretBytes = 7500;
constexpr std::size_t kMaxFileNameBytes = 1023;

constexpr char kKindHint[] =
    "It is key (a JSON document in this database), file (one in a file), environment (what "
    "GOOGLE_APPLICATION_CREDENTIALS names) or metadata (the metadata server).";
constexpr char kDocumentHint[] =
    "Give the JSON document as Google made it, or let the server read it: file => '/path'.";

// Runs `f` with an error in it kept from quoting the statement, which has the secret. Owns no C++
// objects: an error is raised again.
template <class F>
Datum WithoutStatement(const char* shown, F&& f) {
  MemoryContext context = CurrentMemoryContext;
  volatile Datum result = 0;
  PG_TRY();
  {
    pgstat_report_activity(STATE_RUNNING, shown);
    // What the server, or an extension of it, logs of this statement from here on.
    debug_query_string = shown;
    result = Guarded(f);
  }
  PG_CATCH();
  {
    MemoryContextSwitchTo(context);
    ErrorData* error = CopyErrorData();
    FlushErrorState();
    error->hide_stmt = true;
    error->context = nullptr;  // with log_parameter_max_length_on_error it has the arguments
    ReThrowError(error);
  }
  PG_END_TRY();
  return result;
}

void RequireSuperuser(const char* function) {
  if (Pg([] { return superuser(); })) return;
  Throw(ERRCODE_INSUFFICIENT_PRIVILEGE, std::string("permission denied for ") + function,
        "Only superusers manage credentials.",
        "A superuser can allow a role to use one: SELECT postbox.grant_credential(...).");
}

[[noreturn]] void ThrowUndefined(const std::string& name) {
  Throw(ERRCODE_UNDEFINED_OBJECT, "credential \"" + name + "\" does not exist", "",
        "The credentials of this database are listed in postbox.credential.");
}

void CheckFileName(const std::string& file) {
  if (file.empty() || file.front() != '/') {
    Throw(ERRCODE_INVALID_NAME, "file of a credential must be an absolute path");
  }
  if (file.size() > kMaxFileNameBytes) {
    Throw(ERRCODE_INVALID_NAME,
          "file of a credential may have up to " + std::to_string(kMaxFileNameBytes) + " bytes");
  }
}

// The document of a credential.

// A member that each document of a type has.
struct Member {
  const char* type;
  const char* name;
  bool object;  // else a text that is not empty
};
constexpr Member kMembers[] = {
    {"service_account", "client_email", false},
    {"service_account", "private_key", false},
    {"authorized_user", "client_id", false},
    {"authorized_user", "client_secret", false},
    {"authorized_user", "refresh_token", false},
    {"external_account", "audience", false},
    {"external_account", "subject_token_type", false},
    {"external_account", "token_url", false},
    {"external_account", "credential_source", true},
    {"impersonated_service_account", "service_account_impersonation_url", false},
    {"impersonated_service_account", "source_credentials", true},
};

// Null if it has none of that name.
JsonbValue* FindMember(Jsonb* document, const char* name) {
  return Pg([&] {
    return getKeyJsonValueFromContainer(&document->root, name, static_cast<int>(std::strlen(name)),
                                        nullptr);
  });
}

std::string TextMember(Jsonb* document, const char* name) {
  const JsonbValue* value = FindMember(document, name);
  if (value == nullptr || value->type != jbvString) return "";
  return {value->val.string.val, static_cast<std::size_t>(value->val.string.len)};
}

Jsonb* ParseDocument(const std::string& secret) {
  try {
    return Pg([&] {
      return DatumGetJsonbP(DirectFunctionCall1(jsonb_in, CStringGetDatum(secret.c_str())));
    });
  } catch (const PostgresError& error) {
    // Its detail and context quote the document.
    Throw(error.sqlstate, "the secret is not valid JSON", "", kDocumentHint);
  }
}

void CheckSecret(const std::string& secret) {
  if (secret.size() > kMaxSecretBytes) {
    Throw(ERRCODE_PROGRAM_LIMIT_EXCEEDED,
          "the secret has more than " + std::to_string(kMaxSecretBytes) + " bytes");
  }
  const bool ascii =
      std::all_of(secret.begin(), secret.end(), [](unsigned char byte) { return byte < 0x80; });
  if (!ascii && GetDatabaseEncoding() != PG_UTF8) {
    Throw(ERRCODE_UNTRANSLATABLE_CHARACTER,
          "the secret has a character that is not ASCII, and this database is not in UTF8", "",
          "Write such characters as \\uXXXX.");
  }
  Jsonb* document = ParseDocument(secret);
  if (!JB_ROOT_IS_OBJECT(document)) {
    Throw(ERRCODE_INVALID_PARAMETER_VALUE, "the secret is not a JSON object", "", kDocumentHint);
  }
  const std::string type = TextMember(document, "type");
  bool known = false;
  for (const Member& member : kMembers) {
    if (type != member.type) continue;
    known = true;
    const JsonbValue* value = FindMember(document, member.name);
    const bool right =
        value != nullptr &&
        (member.object ? value->type == jbvBinary && JsonContainerIsObject(value->val.binary.data)
                       : value->type == jbvString && value->val.string.len > 0);
    if (right) continue;
    Throw(ERRCODE_INVALID_PARAMETER_VALUE,
          std::string("the secret has no ") + (member.object ? "object" : "text") + " \"" +
              member.name + "\", which type " + member.type + " needs",
          "", kDocumentHint);
  }
  if (!known) {
    Throw(ERRCODE_INVALID_PARAMETER_VALUE, "the secret has no supported \"type\"", "",
          "It is service_account, authorized_user, external_account or "
          "impersonated_service_account.");
  }
  if (type == "service_account" &&
      !TextMember(document, "private_key").starts_with("-----BEGIN ")) {
    Throw(ERRCODE_INVALID_PARAMETER_VALUE, "\"private_key\" of the secret is not in PEM format", "",
          kDocumentHint);
  }
}

std::string ReadServerFile(const std::string& file) {
  Parameters parameters;
  parameters.AddText(file).Add(INT8OID, Int64GetDatum(kMaxSecretBytes + 1));
  Run("SELECT pg_read_file($1, 0, $2)", parameters);
  return TextColumn(0, 1);
}

// Settings.

struct Definition {
  std::string kind;
  std::optional<std::string> secret, file;
};

// Checks what was given for the kind, and reads what is to be read: afterwards there is a secret if
// the kind is key, and a file if it is file.
void Complete(Definition* definition) {
  const std::string& kind = definition->kind;
  if (kind != "key" && kind != "file" && kind != "environment" && kind != "metadata") {
    Throw(ERRCODE_INVALID_PARAMETER_VALUE, "unknown kind of credential: \"" + kind + "\"", "",
          kKindHint);
  }
  if (definition->file.has_value()) {
    if (kind != "key" && kind != "file") {
      Throw(ERRCODE_INVALID_PARAMETER_VALUE, "a credential of kind " + kind + " has no file", "",
            kKindHint);
    }
    CheckFileName(*definition->file);
  }
  if (definition->secret.has_value() && kind != "key") {
    Throw(ERRCODE_INVALID_PARAMETER_VALUE, "a credential of kind " + kind + " has no secret", "",
          kKindHint);
  }
  if (kind == "file" && !definition->file.has_value()) {
    Throw(ERRCODE_INVALID_PARAMETER_VALUE, "a credential of kind file needs a file", "",
          "Name it: file => '/path'.");
  }
  if (kind != "key") return;
  if (definition->secret.has_value() == definition->file.has_value()) {
    Throw(ERRCODE_INVALID_PARAMETER_VALUE,
          definition->file.has_value() ? "a credential of kind key has a secret or a file, not both"
                                       : "a credential of kind key needs a secret",
          "", kDocumentHint);
  }
  if (definition->file.has_value()) definition->secret = ReadServerFile(*definition->file);
  definition->file.reset();
  CheckSecret(*definition->secret);
}

// For a statement that has the secret as a parameter.
void StoreSecret(const std::string& name, const std::string& secret) {
  constexpr char kSetting[] = "auto_explain.log_min_duration";
  const int level = Pg([] { return NewGUCNestLevel(); });
  Pg([&] {
    if (GetConfigOption(kSetting, true, false) == nullptr) return;
    (void)set_config_option(kSetting, "-1", PGC_SUSET, PGC_S_SESSION, GUC_ACTION_SAVE, true, 0,
                            false);
  });
  Parameters parameters;
  parameters.AddText(name).AddText(secret);
  Run("INSERT INTO postbox.credential_secret (credential, secret) VALUES ($1, $2) "
      "ON CONFLICT (credential) DO UPDATE SET secret = EXCLUDED.secret",
      parameters);
  Pg([&] { AtEOXact_GUC(true, level); });
}

// The publications and subscriptions that name a credential, for messages; empty if none does.
std::string UsersOf(const std::string& name, const char* kinds) {
  Parameters key;
  key.AddText(name).AddText(kinds);
  Run("SELECT coalesce(string_agg(u.name, ', ' ORDER BY u.name), '') FROM ("
      "SELECT 'publication ' || p.name AS name FROM postbox.publication p "
      "WHERE p.credential = $1 AND $2 = 'all' UNION ALL "
      "SELECT 'subscription ' || s.name FROM postbox.subscription s WHERE s.credential = $1) u",
      key);
  return TextColumn(0, 1);
}

// Locks the row against other changes and, with kForUpdate, also against those who begin to use it
// (LockCredential). To wait for these is to wait for as long as an owner likes. Returns its kind.
constexpr char kForUpdate[] = "FOR UPDATE";
std::string LockForChange(const std::string& name, const char* lock = "FOR NO KEY UPDATE") {
  Parameters key;
  key.AddText(name);
  if (Run(std::string("SELECT kind FROM postbox.credential WHERE name = $1 ") + lock, key) == 0) {
    ThrowUndefined(name);
  }
  return TextColumn(0, 1);
}

// Whether it is used is asked for under its lock. An older snapshot would not show who has begun.
void RequireNewSnapshots() {
  if (!IsolationUsesXactSnapshot()) return;
  Throw(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE,
        "this change of a credential needs isolation level READ COMMITTED",
        "It would not see recent uses of the credential.",
        "Begin the transaction with BEGIN ISOLATION LEVEL READ COMMITTED.");
}

void CreateCredential(FunctionCallInfo fcinfo) {
  RequireSuperuser("create_credential");
  const std::string name = TextArgument(fcinfo, 0, "name");
  CheckRegisteredName("credential", name);
  Definition definition{.kind = TextArgument(fcinfo, 1, "kind"),
                        .secret = OptionalText(fcinfo, 2),
                        .file = OptionalText(fcinfo, 3)};
  SpiConnection connection;
  FixedSearchPath search_path;
  Complete(&definition);
  const Registrar registrar("credential");
  Parameters row;
  row.AddText(name).AddText(definition.kind).AddTextOrNull(definition.file);
  if (Run("INSERT INTO postbox.credential (name, kind, file) VALUES ($1, $2, $3) "
          "ON CONFLICT (name) DO NOTHING",
          row) == 0) {
    Throw(ERRCODE_DUPLICATE_OBJECT, "credential \"" + name + "\" already exists", "",
          "Choose another name, or change it with postbox.alter_credential.");
  }
  // One that has stayed behind when its credential was deleted otherwise is overwritten.
  if (definition.secret.has_value()) StoreSecret(name, *definition.secret);
}

void AlterCredential(FunctionCallInfo fcinfo) {
  RequireSuperuser("alter_credential");
  const std::string name = TextArgument(fcinfo, 0, "name");
  const std::optional<std::string> kind = OptionalText(fcinfo, 1);
  Definition definition{
      .kind = "", .secret = OptionalText(fcinfo, 2), .file = OptionalText(fcinfo, 3)};
  SpiConnection connection;
  FixedSearchPath search_path;
  std::string before;
  {
    const Registrar registrar("credential");
    before = LockForChange(name);
  }
  definition.kind = kind.value_or(before);
  // With the rights of the caller, who may read files.
  Complete(&definition);
  const Registrar registrar("credential");
  if (definition.kind == "key" && before != "key") {
    RequireNewSnapshots();
    LockForChange(name, kForUpdate);
    const std::string users = UsersOf(name, "subscriptions");
    if (!users.empty()) {
      Throw(ERRCODE_OBJECT_IN_USE, "credential \"" + name + "\" is used by " + users,
            "postbox pull cannot read a secret of the database.",
            "Use kind file, with a path on the machine of postbox pull.");
    }
  }
  Parameters row;
  row.AddText(name).AddText(definition.kind).AddTextOrNull(definition.file);
  Run("UPDATE postbox.credential SET kind = $2, file = $3 WHERE name = $1", row);
  if (definition.secret.has_value()) {
    StoreSecret(name, *definition.secret);
  } else {
    Parameters key;
    key.AddText(name);
    Run("DELETE FROM postbox.credential_secret WHERE credential = $1", key);
  }
}

void DropCredential(const std::string& name) {
  RequireSuperuser("drop_credential");
  RequireNewSnapshots();
  SpiConnection connection;
  FixedSearchPath search_path;
  const Registrar registrar("credential");
  LockForChange(name, kForUpdate);
  const std::string users = UsersOf(name, "all");
  if (!users.empty()) {
    Throw(ERRCODE_DEPENDENT_OBJECTS_STILL_EXIST,
          "cannot drop credential \"" + name + "\" because it is in use",
          "It is used by " + users + ".",
          "Assign another one to the publications with postbox.alter_publication, and drop the "
          "subscriptions.");
  }
  Parameters key;
  key.AddText(name);
  for (const char* table :
       {"credential_secret WHERE credential", "credential_grant WHERE credential",
        "credential_state WHERE credential", "credential WHERE name"}) {
    Run(std::string("DELETE FROM postbox.") + table + " = $1", key);
  }
}

void GrantCredential(const std::string& name, Oid role) {
  RequireSuperuser("grant_credential");
  SpiConnection connection;
  FixedSearchPath search_path;
  const Registrar registrar("credential");
  LockForChange(name);
  Parameters row;
  row.AddText(name).AddOid(OIDOID, role);
  if (Run("SELECT rolname::text FROM pg_roles WHERE oid = $2 AND $1 IS NOT NULL", row) == 0) {
    Throw(ERRCODE_UNDEFINED_OBJECT, "role with OID " + std::to_string(role) + " does not exist");
  }
  Run("INSERT INTO postbox.credential_grant (credential, grantee) "
      "SELECT $1, rolname FROM pg_roles WHERE oid = $2 ON CONFLICT DO NOTHING",
      row);
}

void RevokeCredential(const std::string& name, const std::string& role) {
  RequireSuperuser("revoke_credential");
  SpiConnection connection;
  FixedSearchPath search_path;
  const Registrar registrar("credential");
  LockForChange(name);
  Parameters row;
  row.AddText(name).AddText(role);
  if (Run("DELETE FROM postbox.credential_grant WHERE credential = $1 AND grantee = $2", row) > 0) {
    return;
  }
  Throw(ERRCODE_UNDEFINED_OBJECT,
        "credential \"" + name + "\" is not granted to role \"" + role + "\"", "",
        "See postbox.credential_grant.");
}

}  // namespace

void RequireCredential(const std::string& name) {
  Parameters key;
  key.AddText(name);
  if (Run("SELECT EXISTS (SELECT FROM postbox.credential_grant g JOIN pg_roles r ON r.rolname = "
          "g.grantee WHERE g.credential = c.name AND pg_has_role(r.oid, 'USAGE')) "
          "FROM postbox.credential c WHERE c.name = $1",
          key) == 0) {
    ThrowUndefined(name);
  }
  if (BoolColumn(0, 1) || Pg([] { return superuser(); })) return;
  Throw(ERRCODE_INSUFFICIENT_PRIVILEGE, "permission denied for credential \"" + name + "\"", "",
        "A superuser can grant it: SELECT postbox.grant_credential(...).");
}

std::string LockCredential(const std::string& name) {
  const Registrar registrar("credential");
  Parameters key;
  key.AddText(name);
  if (Run("SELECT kind FROM postbox.credential WHERE name = $1 FOR KEY SHARE", key) == 0) {
    ThrowUndefined(name);
  }
  return TextColumn(0, 1);
}

}  // namespace postbox

POSTBOX_FUNCTION(create_credential) {
  return postbox::WithoutStatement("SELECT postbox.create_credential(...)", [&] {
    postbox::CreateCredential(fcinfo);
    return Datum{0};
  });
}

POSTBOX_FUNCTION(alter_credential) {
  return postbox::WithoutStatement("SELECT postbox.alter_credential(...)", [&] {
    postbox::AlterCredential(fcinfo);
    return Datum{0};
  });
}

POSTBOX_FUNCTION(drop_credential) {
  return postbox::Guarded([&] {
    postbox::DropCredential(postbox::TextArgument(fcinfo, 0, "name"));
    return Datum{0};
  });
}

POSTBOX_FUNCTION(grant_credential) {
  return postbox::Guarded([&] {
    postbox::GrantCredential(postbox::TextArgument(fcinfo, 0, "name"),
                             postbox::OidArgument(fcinfo, 1, "role"));
    return Datum{0};
  });
}

POSTBOX_FUNCTION(revoke_credential) {
  return postbox::Guarded([&] {
    postbox::RevokeCredential(postbox::TextArgument(fcinfo, 0, "name"),
                              postbox::TextArgument(fcinfo, 1, "role"));
    return Datum{0};
  });
}
