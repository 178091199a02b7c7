// The head of a view, with what belongs beside its title.
import {none} from "./format.js";
import {html, useState} from "./html.js";

export function ViewHead({title, count, children}) {
  return html`<div class="view-head"><h1>${title}${count !== undefined && html` <span class="muted">${count}</span>`}</h1>
    <div class="view-tools">${children}</div></div>`;
}

// facts: [[name, value, title], ...]: pairs below each other, for the details of a row.
export function Facts({facts}) {
  return html`<dl class="facts">${facts.filter(Boolean).map(([name, value, title]) => html`<div key=${name}>
    <dt title=${title}>${name}</dt><dd>${value}</dd></div>`)}</dl>`;
}

// entries: [[name, text], ...]: names and texts that come from elsewhere.
export function Pairs({entries, named = (name) => name}) {
  return html`<dl class="pairs">${entries.map(([name, text]) => html`<div key=${name}><dt>${named(name)}</dt><dd><code>${text}</code></dd></div>`)}</dl>`;
}

// A command to run elsewhere, with a button that copies it.
export const Command = ({children}) => html`<div class="command"><pre>${children}</pre><${CopyButton} text=${children} /></div>`;

// Browsers have a clipboard for pages of https and of this machine only.
export function CopyButton({text}) {
  const [copied, setCopied] = useState(false);
  if (!navigator.clipboard) return null;
  const copy = () => navigator.clipboard.writeText(text).then(() => setCopied(true), () => setCopied(false));
  return html`<button type="button" class="small" onClick=${copy} onBlur=${() => setCopied(false)}>${copied ? "Copied" : "Copy"}</button>`;
}

export function Section({title, hint, children}) {
  return html`<section class="section"><h2>${title}</h2>${hint && html`<p class="muted">${hint}</p>`}${children}</section>`;
}

// A list of texts, such as event types.
export const Texts = ({texts}) => (texts?.length ? html`<span class="texts">${texts.map((one) => html`<code key=${one}>${one}</code>`)}</span>` : none);
