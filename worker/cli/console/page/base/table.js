// A table of rows from the API.
//
// columns: [{id, title, render(row), align: "start" | "end", hint, wide, narrow, stays}]. `wide` takes what is left of the width; `narrow: false`
// leaves the column out on small screens; `stays` keeps it in sight where the rest is scrolled sideways. `rowKey(row)` returns a text that stays the same over refreshes. With `selected` (a Set of keys)
// and `onSelect(set)` rows have checkboxes; `selectable(row)` may exclude some. `details(row)` is shown below a row that is opened.
import {Loading} from "./error_bar.js";
import {html, Fragment, useEffect, useId, useRef, useState} from "./html.js";

// The last column, with the buttons of the row.
export const buttonsColumn = (render) => ({id: "act", title: html`<span class="hidden">Actions</span>`, align: "end", stays: true, render});

export function Table({caption, columns, rows, rowKey, empty, details, selected, onSelect, selectable = () => true, rowKind}) {
  const [open, setOpen] = useState(() => new Set());
  const id = useId();
  if (!rows) return html`<${Loading} />`;
  if (!rows.length) return empty;
  const chosen = selected && {selected, onSelect, selectable};
  const width = columns.length + (details ? 1 : 0) + (chosen ? 1 : 0);
  return html`<div class="table-frame" tabindex="-1"><table onKeyDown=${moveBetweenRows}>
    <caption class="hidden">${caption}</caption>
    <thead><tr>
      ${chosen && html`<th class="control"><${SelectAll} ...${chosen} keys=${rows.filter(selectable).map(rowKey)} /></th>`}
      ${details && html`<th class="control"><span class="hidden">Details</span></th>`}
      ${columns.map((column) => html`<th key=${column.id} scope="col" class=${classOf(column)} title=${column.hint}>${column.title}</th>`)}
    </tr></thead>
    <tbody>${rows.map((row) => {
      const key = rowKey(row);
      const toggle = () => setOpen(toggled(open, key));
      return html`<${Row} key=${key} ...${{row, name: key, columns, chosen, details, width, kind: rowKind?.(row), open: open.has(key), toggle, id: `${id}-${encodeURIComponent(key)}`}} />`;
    })}</tbody>
  </table></div>`;
}

function Row({row, name, columns, chosen, details, width, kind, open, toggle, id}) {
  return html`<${Fragment}>
    <tr class=${`row ${kind ? `row-${kind}` : ""}`} tabindex="-1" onKeyDown=${details && ((event) => openByKey(event, toggle))}>
      ${chosen && html`<td class="control"><${SelectOne} ...${chosen} row=${row} name=${name} /></td>`}
      ${details && html`<td class="control"><button type="button" class="expand" aria-expanded=${open} aria-controls=${id}
        aria-label=${`Details of ${name}`} onClick=${toggle}><span aria-hidden="true">›</span></button></td>`}
      ${columns.map((column) => html`<td key=${column.id} class=${classOf(column)}>${column.render(row)}</td>`)}
    </tr>
    ${open && html`<tr class="details" id=${id}><td colspan=${width}><div class="inner">${details(row)}</div></td></tr>`}
  </${Fragment}>`;
}

function SelectAll({selected, onSelect, keys}) {
  const box = useRef(null);
  const count = keys.filter((key) => selected.has(key)).length;
  useEffect(() => {
    box.current.indeterminate = count > 0 && count < keys.length;
  });
  const change = () => onSelect(count === keys.length ? new Set([...selected].filter((key) => !keys.includes(key))) : new Set([...selected, ...keys]));
  return html`<input ref=${box} type="checkbox" aria-label="Select all rows of this page" checked=${count > 0 && count === keys.length}
    disabled=${!keys.length} onChange=${change} />`;
}

function SelectOne({selected, onSelect, selectable, row, name}) {
  return html`<input type="checkbox" aria-label=${`Select ${name}`} checked=${selected.has(name)} disabled=${!selectable(row)}
    onChange=${() => onSelect(toggled(selected, name))} />`;
}

function toggled(set, key) {
  const next = new Set(set);
  if (!next.delete(key)) next.add(key);
  return next;
}

function classOf({align, wide, narrow, stays}) {
  return [align === "end" && "end", wide && "wide", narrow === false && "not-narrow", stays && "stays"].filter(Boolean).join(" ");
}

// Enter on the row itself; in a button or a link of the row, Enter is theirs.
function openByKey(event, toggle) {
  if (event.key !== "Enter" || event.target !== event.currentTarget) return;
  event.preventDefault();
  toggle();
}

function moveBetweenRows(event) {
  const step = {ArrowDown: 1, ArrowUp: -1}[event.key];
  const row = event.target.closest?.("tr.row");
  if (!step || !row || event.target.matches("input:not([type=checkbox]), select, textarea")) return;
  const rows = [...event.currentTarget.querySelectorAll("tr.row")];
  const next = rows[rows.indexOf(row) + step];
  if (!next) return;
  event.preventDefault();
  next.focus();
}
