// Bytes as the texts that a payload can be shown as.

export function bytesOfBase64(text) {
  return Uint8Array.from(atob(text), (character) => character.charCodeAt(0));
}

export const bytesOfText = (text) => new TextEncoder().encode(text);

export function base64OfBytes(bytes) {
  let binary = "";
  for (const byte of bytes) binary += String.fromCharCode(byte);
  return btoa(binary);
}

const perLine = 16;

// Place, bytes in hex, and the printable ones as characters, 16 on a line.
export function hexDump(bytes) {
  const lines = [];
  for (let place = 0; place < bytes.length; place += perLine) {
    const part = [...bytes.subarray(place, place + perLine)];
    const hex = part.map((byte) => byte.toString(16).padStart(2, "0")).join(" ");
    const text = part.map((byte) => (byte >= 32 && byte < 127 ? String.fromCharCode(byte) : "·")).join("");
    lines.push(`${place.toString(16).padStart(6, "0")}  ${hex.padEnd(perLine * 3)} ${text}`);
  }
  return lines.join("\n");
}
