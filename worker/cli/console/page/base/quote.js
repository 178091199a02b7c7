// Names in commands that users copy. Names may have any character, and a shell or psql must not read them as anything else: neither when the
// command runs nor while it is pasted, where a terminal takes a control character for a key. Characters that turn the direction of a line are
// written out, too, so that it reads as it runs.
const keys = /[\u0000-\u001f\u007f-\u009f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]/g;

const written = (text) => text.replace(/[\\']/g, "\\$&").replace(keys, (one) => `\\u${one.charCodeAt(0).toString(16).padStart(4, "0")}`);

// A backslash means itself or not, as a setting says, but not so behind an E.
export const sqlText = (text) => (/\\/.test(text) || text.search(keys) >= 0 ? `E'${written(text)}'` : `'${text.replaceAll("'", "''")}'`);

// For a value behind `--option=`: a word of its own may begin with a minus.
export function shellWord(text) {
  if (text.search(keys) >= 0) return `$'${written(text)}'`;
  return /^[\w./-]+$/.test(text) ? text : `'${text.replaceAll("'", `'\\''`)}'`;
}
