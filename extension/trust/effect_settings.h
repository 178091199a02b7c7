// The settings that change what SQL does, while events are applied.
//
// A role, a database or a session may have other values than the server, and a session that applies
// events is any role's: a puller whose role has session_replication_role = replica would check no
// foreign key of a target and fire no trigger. So what changes the effect of a statement has a
// fixed value while events are applied, like what changes the form of values (pinned_settings.h):
// the one that is built into the server. The exception is default_text_search_config, whose
// built-in value is of little use, and which initdb writes into postgresql.conf: it has the value
// of the database, or else that of postgresql.conf, for all roles and sessions.
//
// Settings of other extensions are not known here. A function that needs a value of one, or of
// these, has a SET clause.
#ifndef POSTBOX_EXTENSION_TRUST_EFFECT_SETTINGS_H_
#define POSTBOX_EXTENSION_TRUST_EFFECT_SETTINGS_H_

#include "extension/base/guard.h"

namespace postbox {

// Sets those that have another value, and those of pinned_settings.h, until the end of the nest
// level that is current: that of FixedSearchPath or ActAs (extension/trust/act_as.h). Costs some
// comparisons if there is none. `text_search` is what TextSearchConfig() has returned.
void PinEffects(const std::string& text_search);

// The default_text_search_config of the database or of postgresql.conf, whatever the role and the
// session have. Needs an open SPI connection and FixedSearchPath.
std::string TextSearchConfig();

}  // namespace postbox

#endif  // POSTBOX_EXTENSION_TRUST_EFFECT_SETTINGS_H_
