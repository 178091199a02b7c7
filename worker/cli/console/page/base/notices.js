// What an action has done, for a few seconds at the edge of the page, and read out by screen readers.
import {html, useEffect} from "./html.js";
import {createStore, useStore} from "./state.js";

const shownFor = 8000; // ms
const notice = createStore(null);

export function notify(text, {failed = false} = {}) {
  notice.set({text, failed});
}

export function Notices() {
  const shown = useStore(notice);
  useEffect(() => {
    if (!shown) return undefined;
    const timer = setTimeout(() => notice.set(null), shownFor);
    return () => clearTimeout(timer);
  }, [shown]);
  return html`<div class="notices" role="status">${shown && html`<div class=${shown.failed ? "notice notice-failed" : "notice"}>${shown.text}
    <button type="button" class="plain small" aria-label="Close" onClick=${() => notice.set(null)}>×</button></div>`}</div>`;
}
