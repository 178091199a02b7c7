// The bytes of a message, made of SQL values: text and JSON are sent in UTF-8.
//
// Call these inside Pg(): they may ereport. The result is a bytea in the current memory context, or
// the value itself where its bytes are those of the message.
#ifndef POSTBOX_EXTENSION_BASE_MESSAGE_BYTES_H_
#define POSTBOX_EXTENSION_BASE_MESSAGE_BYTES_H_

#include "extension/base/postgres.h"

namespace postbox {

// Of a text, or of a json, which is the text that it was given as.
Datum BytesOfText(Datum value);

// Of a jsonb: its text.
Datum BytesOfJsonb(Datum value);

// Throws invalid_text_representation unless the text is JSON. Escapes are not looked at: "\u0000"
// and half of a surrogate pair are JSON, though PostgreSQL cannot hold what they stand for.
void CheckJson(Datum value);

}  // namespace postbox

#endif  // POSTBOX_EXTENSION_BASE_MESSAGE_BYTES_H_
