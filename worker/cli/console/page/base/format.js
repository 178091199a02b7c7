// Values as texts. Numbers that may be large come as texts, and stay texts: a double would round them.
import {html, useEffect} from "./html.js";
import {createStore, useStore} from "./state.js";

export const none = "–";

const isMissing = (value) => value === null || value === undefined || value === "";

// Groups of three digits with narrow spaces.
export function formatCount(value) {
  if (isMissing(value)) return none;
  return String(value).replace(/^-?\d+/, (digits) => digits.replace(/\B(?=(\d{3})+$)/g, "\u202f"));
}

// "10,000+" where counting ended at the bound.
export function formatBounded(value, bound) {
  return Number(value) >= bound ? `${formatCount(bound)}+` : formatCount(value);
}

export function formatRate(perSecond) {
  if (isMissing(perSecond)) return none;
  const rate = Number(perSecond);
  if (rate > 0 && rate < 0.01) return "< 0.01/s";
  const text = rate === 0 || rate >= 100 ? formatCount(Math.round(rate)) : String(Number(rate.toPrecision(2)));
  return `${text}/s`;
}

const units = [[86400, "d"], [3600, "h"], [60, "min"], [1, "s"]];

// Two units: "3 min 12 s".
export function formatSeconds(seconds) {
  if (isMissing(seconds)) return none;
  let rest = Math.max(0, Number(seconds));
  if (rest < 1) return rest === 0 ? "0 s" : "< 1 s";
  rest = Math.floor(rest);
  const first = units.findIndex(([size]) => rest >= size);
  return units.slice(first, first + 2).map(([size, unit]) => {
    const count = Math.floor(rest / size);
    rest -= count * size;
    return count ? `${count} ${unit}` : "";
  }).filter(Boolean).join(" ");
}

// One unit: "3 min ago", "in 2 h".
export function formatAge(time, now) {
  const seconds = Math.round((now - time) / 1000);
  const distance = Math.abs(seconds);
  if (distance < 2) return "now";
  const [size, unit] = units.find(([one]) => distance >= one) ?? units.at(-1);
  const text = `${Math.floor(distance / size)} ${unit}`;
  return seconds > 0 ? `${text} ago` : `in ${text}`;
}

export function formatBytes(value) {
  if (isMissing(value)) return none;
  let size = Number(value);
  const names = ["B", "kB", "MB", "GB"];
  let name = 0;
  while (size >= 1000 && name < names.length - 1) {
    size /= 1000;
    name += 1;
  }
  return `${size >= 100 || name === 0 ? Math.round(size) : size.toFixed(1)} ${names[name]}`;
}

// In the time zone of the browser, with its offset: people compare it with logs.
export function formatTime(time) {
  const date = new Date(time);
  const two = (number) => String(number).padStart(2, "0");
  const offset = -date.getTimezoneOffset();
  const zone = `${offset < 0 ? "-" : "+"}${two(Math.floor(Math.abs(offset) / 60))}:${two(Math.abs(offset) % 60)}`;
  return `${date.getFullYear()}-${two(date.getMonth() + 1)}-${two(date.getDate())} ` +
    `${two(date.getHours())}:${two(date.getMinutes())}:${two(date.getSeconds())} ${zone}`;
}

// One clock for all ages, so that they change together.
const clock = createStore(Date.now());
let clockUsers = 0;
let clockTimer = 0;

export function useNow() {
  useEffect(() => {
    clockUsers += 1;
    if (clockUsers === 1) clockTimer = setInterval(() => document.hidden || clock.set(Date.now()), 1000);
    return () => {
      clockUsers -= 1;
      if (clockUsers === 0) clearInterval(clockTimer);
    };
  }, []);
  return useStore(clock);
}

// A time as its age, with the time itself in the title. Postgres writes infinity for a pause without an end.
export function Age({time}) {
  const now = useNow();
  if (isMissing(time)) return none;
  const milliseconds = typeof time === "number" ? time : Date.parse(time);
  if (Number.isNaN(milliseconds)) return String(time);
  return html`<time dateTime=${new Date(milliseconds).toISOString()} title=${formatTime(milliseconds)}>${formatAge(milliseconds, now)}</time>`;
}

// A state by color and word. Kinds: ok, waiting, paused, failing, idle.
export function State({kind, children, title}) {
  return html`<span class=${`state state-${kind}`} title=${title}>${children}</span>`;
}

// A text that may be long: cut by the style, whole in the title and for the clipboard.
export function Long({text, class: name = ""}) {
  return isMissing(text) ? none : html`<span class=${`long ${name}`} title=${text}>${text}</span>`;
}

// Names, keys and ids.
export function Code({children}) {
  return isMissing(children) ? none : html`<code title=${String(children)}>${children}</code>`;
}

// A paused thing with its reason, since when and until when. Nothing if it is not paused.
export function Paused({row}) {
  if (!row.paused) return null;
  const end = row.paused_until && row.paused_until !== "infinity";
  return html`<${State} kind="paused" title=${row.paused_reason}>paused</${State}>
    <span class="sub">${row.paused_reason}${end && html`${row.paused_reason && ", "}ends <${Age} time=${row.paused_until} />`}</span>`;
}
