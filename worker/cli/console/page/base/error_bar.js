// An error with its cause and what to do.
import {html} from "./html.js";

const causes = {
  0: "Is the console running, and does the network reach it?",
  400: "The console did not understand a value.",
  403: "The role that has logged in may not do this, or the console is read-only.",
  404: "It may have been dropped or renamed meanwhile.",
  409: "The state has changed meanwhile, or does not allow it.",
  413: "The request is too large.",
  429: "Many requests came at once.",
  503: "The console or the database is busy, or does not answer.",
};

// With `acts`, of a request that changes something. Where its answer is lost, nothing may be said of what it has done.
export function ErrorBar({error, onRetry, title = "This could not be read", acts = false}) {
  // Where a view has no session, the log-in form says so.
  if (!error || (error.status === 401 && onRetry)) return null;
  const unknown = acts && isLost(error);
  const state = error.sqlstate ? ` (SQLSTATE ${error.sqlstate})` : "";
  return html`<div class="bar bar-error" role="alert">
    <strong>${unknown ? "It is not known whether this was done" : title}:</strong> <span class="bar-text">${error.message}${state}</span>
    <span class="muted">${unknown ? "Look at the list of actions before you try again." : causes[error.status] ?? ""}${error.tried ? " The page keeps trying." : ""}</span>
    ${onRetry && html`<button type="button" class="small" onClick=${onRetry}>Try again</button>`}
  </div>`;
}

// Nothing has said what became of a request: the console did not answer, something in front of it did, the connection to the database broke, or
// the statement was cancelled, which it also is where it waits for a standby after its end.
export const isLost = (error) => Boolean(error) && (error.status === 0 || (error.status >= 500 && !error.explained) || (error.status === 503 && ["", "57014"].includes(error.sqlstate)));

// What is neither an error nor a row: the first load, and nothing to show.
export function Empty({title, children}) {
  return html`<div class="empty"><strong>${title}</strong>${children && html`<div>${children}</div>`}</div>`;
}

export const Loading = () => html`<div class="empty loading" aria-live="polite">Loading …</div>`;
