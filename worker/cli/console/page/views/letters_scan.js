// Dead letters that match a filter, a page at a time. The API looks at 20,000 of them for an answer, so an answer may have few rows or none and
// go on all the same: this asks on by itself until the page is full, or all have been looked at.
import {get} from "../base/api.js";
import {html, useRef, useState} from "../base/html.js";
import {formatCount} from "../base/format.js";
import {rowsOfPage, usePages} from "../base/pager.js";
import {usePolled} from "../base/refresh.js";
import {plural} from "../base/words.js";

const perAnswer = 20000;
const restFactor = 10; // A long scan waits ten times as long until it is repeated by itself.

// Returns pages as usePages does; `scan` says how far it has come: {answers, rows, busy}.
export function useLetters(filter) {
  const key = JSON.stringify(filter);
  const [scan, setScan] = useState({key: "", answers: 0, rows: [], busy: true});
  const begunFor = useRef("");
  const known = useRef("");
  const load = async (next, signal) => {
    const place = key + JSON.stringify(next);
    const isNew = known.current !== place;
    const begun = performance.now();
    const step = (answers, rows, busy) => isNew && setScan({key, answers, rows, busy});
    if (begunFor.current !== place) step(0, [], true); // One that begins again keeps what it has found until then.
    begunFor.current = place;
    const page = await fullPage(filter, next, signal, (answers, rows) => step(answers, rows, true));
    step(page.answers, page.rows, false);
    known.current = place;
    return {...page, key, rest: Math.round((performance.now() - begun) / 1000) * restFactor};
  };
  const pages = usePages(load, [key]);
  // Rows of another filter are not shown as those of this one.
  const rows = pages.data?.key === key ? pages.rows : undefined;
  return {...pages, rows, scan: scan.key === key ? scan : {answers: 0, rows: [], busy: true}};
}

async function fullPage(filter, first, signal, onStep) {
  let rows = [];
  let next = first;
  for (let answers = 1; ; answers += 1) {
    const answer = await get("dead-letters", {...filter, limit: rowsOfPage - rows.length, ...next}, signal);
    rows = [...rows, ...answer.rows];
    next = answer.next;
    if (!next || rows.length >= rowsOfPage) return {rows, next, answers};
    onStep(answers, rows);
  }
}

// How far the search has come, while it goes on.
export function ScanProgress({scan}) {
  if (!scan.busy || !scan.answers) return null;
  return html`<div class="bar bar-note" role="status"><progress aria-label="Searching"></progress>
    Looked at ${formatCount(scan.answers * perAnswer)} dead letters, found ${scan.rows.length}. It goes on until the page is full.</div>`;
}

// How many match, up to the bound of the API. It is read less often than the rows.
export function useLetterCount(filter) {
  const key = JSON.stringify(filter);
  const {data} = usePolled(async (signal) => ({...await get("dead-letters/count", filter, signal), key}), [key], {atLeast: 15});
  return data?.key === key ? data : null;
}

export function countText(count) {
  if (!count) return "";
  return Number(count.count) >= count.counted_to ? `${formatCount(count.counted_to)}+` : plural(count.count, "letter");
}
