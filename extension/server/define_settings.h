// Every setting (GUC) of Postbox: names, ranges, defaults and descriptions are in the tables of
// define_settings.cc and nowhere else.
#ifndef POSTBOX_EXTENSION_SERVER_DEFINE_SETTINGS_H_
#define POSTBOX_EXTENSION_SERVER_DEFINE_SETTINGS_H_

namespace postbox {

// Defines all settings and reserves the prefix. For _PG_init, once in a process.
void DefineSettings();

}  // namespace postbox

#endif  // POSTBOX_EXTENSION_SERVER_DEFINE_SETTINGS_H_
