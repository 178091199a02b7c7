// JSON as a text with lines and indents. The text is not parsed: numbers beyond 2^53, double names and their order stay as they were sent.

const widest = "  ";

// The text as it is where it is not JSON.
export function prettyJson(text) {
  let depth = 0;
  let out = "";
  for (const token of tokens(text)) {
    if (token === "{}" || token === "[]") out += token;
    else if (token === "{" || token === "[") out += token + line(depth += 1);
    else if (token === "}" || token === "]") out += line(depth -= 1) + token;
    else if (token === ",") out += token + line(depth);
    else out += token === ":" ? ": " : token;
  }
  return out;
}

const line = (depth) => `\n${widest.repeat(Math.min(Math.max(depth, 0), 40))}`;

// Texts in quotes, brackets, and what is between them; empty brackets are one token.
function* tokens(text) {
  const parts = /"(?:[^"\\]|\\.)*"|\{\s*\}|\[\s*\]|[{}[\],:]|[^\s{}[\],:"]+|"/gsu;
  for (const [part] of text.matchAll(parts)) yield /^[{[]\s/u.test(part) ? part[0] + part.at(-1) : part;
}

// A value that the API gave as JSON, on one line.
export const compactJson = (value) => (typeof value === "string" ? value : JSON.stringify(value));
