// What surrounds each view: the header, the navigation, and the list of keys.
import {logOut, session} from "./api.js";
import {Dialog} from "./dialog.js";
import {formatAge, formatTime, useNow} from "./format.js";
import {html, useState} from "./html.js";
import {keyTexts} from "./keys.js";
import {notify} from "./notices.js";
import {intervals, refreshEvery, refreshNow, refreshState} from "./refresh.js";
import {linkTo} from "./route.js";
import {useStore} from "./state.js";
import {ThemeSwitch} from "./theme.js";

export function Header({onMenu, menuOpen, onHelp}) {
  const {role, actions_allowed: acts} = useStore(session);
  const leave = () => logOut().catch((error) => notify(`You are still logged in: ${error.message}`, {failed: true}));
  return html`<header class="top">
    <button type="button" class="menu plain" aria-expanded=${menuOpen} aria-controls="views" onClick=${onMenu}>Menu</button>
    <a class="brand" href=${linkTo("overview")}>Postbox</a>
    ${!acts && html`<span class="badge" title="The console runs without --allow-actions: it only reads.">read-only</span>`}
    <span class="spring"></span>
    <${Refresh} />
    <span class="role" title="The role that has logged in">${role}</span>
    <${ThemeSwitch} />
    <button type="button" class="plain" title="Keys (?)" aria-label="Keys" onClick=${onHelp}>?</button>
    <button type="button" onClick=${leave}>Log out</button>
  </header>`;
}

function Refresh() {
  const {at, busy, failed} = useStore(refreshState);
  const every = useStore(refreshEvery);
  const now = useNow();
  const age = at ? `updated ${formatAge(at, Math.max(now, at))}` : "not read yet";
  return html`<div class="refresh">
    <span class=${`age ${failed ? "failed" : ""}`} title=${at ? formatTime(at) : ""}>${failed ? "failed, " : ""}${age}</span>
    <span class=${`dot ${busy ? "busy" : ""}`} aria-hidden="true"></span>
    <select aria-label="Refresh" title="How often the view is read while the tab is visible" value=${every}
      onChange=${(event) => refreshEvery.set(Number(event.currentTarget.value))}>
      ${intervals.map((one) => html`<option key=${one} value=${one}>${one ? `every ${one} s` : "off"}</option>`)}
    </select>
    <button type="button" title="Read now (r)" onClick=${refreshNow}>Refresh</button>
  </div>`;
}

export function Navigation({views, path, open, onChoose}) {
  const groups = [...new Set(views.map((one) => one.group))];
  return html`<nav id="views" class=${open ? "views open" : "views"} aria-label="Views">
    ${groups.map((group) => html`<section key=${group}>
      ${group && html`<h2>${group}</h2>`}
      ${views.filter((one) => one.group === group).map((one) => html`<a key=${one.path} href=${linkTo(one.path)} onClick=${onChoose}
        aria-current=${one.path === path ? "page" : undefined}><span>${one.title}</span>${one.key && html`<kbd title=${`g, then ${one.key}`}>${one.key}</kbd>`}</a>`)}
    </section>`)}
  </nav>`;
}

export function KeyHelp({views, onClose}) {
  return html`<${Dialog} title="Keys" onClose=${onClose}>
    <dl class="keys">
      ${keyTexts.map(([key, text]) => html`<div key=${key}><dt><kbd>${key}</kbd></dt><dd>${text}</dd></div>`)}
      ${views.filter((one) => one.key).map((one) => html`<div key=${one.path}><dt><kbd>g</kbd> <kbd>${one.key}</kbd></dt><dd>${one.title}</dd></div>`)}
    </dl>
  </${Dialog}>`;
}

// Returns [open, toggle, close].
export function useToggle() {
  const [open, setOpen] = useState(false);
  return [open, () => setOpen((old) => !old), () => setOpen(false)];
}
