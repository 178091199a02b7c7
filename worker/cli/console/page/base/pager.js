// Pages of a list. The API tells where the next page begins (`next`), so going back needs a stack of the beginnings.
import {get} from "./api.js";
import {html, useEffect, useState} from "./html.js";
import {usePolled} from "./refresh.js";

export const rowsOfPage = 50;

// `load(next, signal)` returns {rows, next}; `next` is null for the first page. `inputs`: what the list depends on, as texts; a change of them
// leads to the first page.
export function usePages(load, inputs = []) {
  const [{key, stack}, setPlace] = useState({key: "", stack: []});
  const wanted = JSON.stringify(inputs);
  const beginnings = key === wanted ? stack : [];
  const place = (next) => setPlace({key: wanted, stack: next});
  useEffect(() => place([]), [wanted]);
  const here = wanted + JSON.stringify(beginnings);
  const polled = usePolled(async (signal) => ({...await load(beginnings.at(-1) ?? null, signal), here}), [here]);
  // Until a page has come, the rows are those of the page before, and nothing leads further from it.
  const arrived = polled.data?.here === here;
  const next = arrived ? polled.data.next : null;
  return {
    ...polled,
    rows: polled.data?.rows,
    page: beginnings.length + 1,
    arrived,
    forward: next && (() => place([...beginnings, next])),
    back: beginnings.length ? () => place(beginnings.slice(0, -1)) : null,
    first: beginnings.length ? () => place([]) : null,
  };
}

// The pages of one path of the API.
export function useList(path, parameters = {}) {
  return usePages((next, signal) => get(path, {limit: rowsOfPage, ...parameters, ...next}, signal), [path, parameters]);
}

export function Pager({pages}) {
  if (pages.page === 1 && pages.arrived && !pages.forward) return null;
  if (!pages.rows) return null;
  return html`<nav class="pager" aria-label="Pages">
    <button type="button" disabled=${!pages.first} onClick=${pages.first}>First</button>
    <button type="button" disabled=${!pages.back} onClick=${pages.back}>Previous</button>
    <span role="status">${pages.arrived ? `Page ${pages.page}` : `Page ${pages.page} …`}</span>
    <button type="button" disabled=${!pages.forward} onClick=${pages.forward}>Next</button>
  </nav>`;
}
