#include "extension/shared/settings.h"

namespace postbox {
namespace {

const Settings* current = nullptr;

}  // namespace

const Settings& settings() { return *current; }

void UseSettings(const Settings* values) { current = values; }

}  // namespace postbox
