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

// A command to run elsewhere, with a button that copies it.
export function Command({children}) {
  const [copied, setCopied] = useState(false);
  const copy = async () => {
    await navigator.clipboard.writeText(children).then(() => setCopied(true), () => setCopied(false));
  };
  // Browsers have no clipboard for pages that come over plain HTTP from another host.
  const canCopy = Boolean(navigator.clipboard);
  return html`<div class="command"><pre>${children}</pre>
    ${canCopy && html`<button type="button" class="small" onClick=${copy}>${copied ? "Copied" : "Copy"}</button>`}</div>`;
}

export function Section({title, hint, children}) {
  return html`<section class="section"><h2>${title}</h2>${hint && html`<p class="muted">${hint}</p>`}${children}</section>`;
}

// A list of texts, such as event types.
export const Texts = ({texts}) => (texts?.length ? html`<span class="texts">${texts.map((one) => html`<code key=${one}>${one}</code>`)}</span>` : none);
