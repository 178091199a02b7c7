// A view that is one list of the API, with pages.
import {Empty, ErrorBar} from "./error_bar.js";
import {html} from "./html.js";
import {Pager, useList} from "./pager.js";
import {Table} from "./table.js";

// `empty` is [title, what to do]. The rest is passed on to the table.
export function List({path, parameters = {}, empty: [title, advice], ...table}) {
  const pages = useList(path, parameters);
  return html`<${ErrorBar} error=${pages.error} onRetry=${pages.reload} />
    ${(pages.rows || !pages.error) && html`<${Table} rows=${pages.rows} empty=${html`<${Empty} title=${title}>${advice}</${Empty}>`} ...${table} />`}
    <${Pager} pages=${pages} />`;
}
