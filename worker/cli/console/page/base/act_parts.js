// What the dialogs of redrive and discard have in common.
import {ErrorBar} from "./error_bar.js";
import {CheckField, TextField} from "./form.js";
import {formatCount} from "./format.js";
import {html, useRef, useState} from "./html.js";
import {refreshNow} from "./refresh.js";

const mostWithoutTyping = 100; // events; for more, the count is typed

// An action that takes a while: `phase` is ask, running or ended. `run(work)` calls work(stopped); what it throws is `error`.
export function useRun() {
  const [state, setState] = useState({phase: "ask", stopping: false, error: null});
  const stopped = useRef(false);
  const run = async (work) => {
    stopped.current = false;
    setState({phase: "running", stopping: false, error: null});
    let error = null;
    try {
      await work(() => stopped.current);
    } catch (caught) {
      error = caught;
    }
    setState({phase: "ended", stopping: stopped.current, error});
    refreshNow();
  };
  const stop = () => {
    stopped.current = true;
    setState((old) => ({...old, stopping: true}));
  };
  return {...state, run, stop};
}

export const isConfirmed = (count, typed) => Number(count) <= mostWithoutTyping || typed.replace(/[\s,.\u202f]/g, "") === String(count);

export function ConfirmCount({count, ...field}) {
  if (Number(count) <= mostWithoutTyping) return null;
  return html`<${TextField} label=${`Type ${count} to confirm`} inputmode="numeric" autocomplete="off" ...${field} />`;
}

export function ReasonField({action, ...field}) {
  const needed = action === "discard";
  return html`<${TextField} label=${needed ? "Reason" : "Reason (optional)"} autofocus maxlength="500" ...${field}
    hint="Others see it in the list of actions." />`;
}

export function AcceptHole(field) {
  return html`<${CheckField} label="Accept holes" ...${field}
    hint="A parked event that is discarded leaves a hole if a handler takes it, or if no later event of its key replaces the whole row: its effect is missing
      for good, and the later events are applied without it. Without this, such an event is refused." />`;
}

export function Running({done, total, stopping, onStop}) {
  return html`<div class="running" aria-live="polite">
    <progress aria-label="Progress" max=${total} value=${Math.min(done, total)}></progress>
    <p>${formatCount(done)} of ${formatCount(total)} done. ${stopping ? "It stops after this step." : ""}</p>
    <div class="buttons"><button type="button" autofocus disabled=${stopping} onClick=${onStop}>Stop</button></div>
  </div>`;
}

// `onMore` goes on where an error or the user has stopped it.
export function Ended({error, onMore, more, onClose, children}) {
  return html`<${ErrorBar} error=${error} title="It stopped" />
    ${children}
    <div class="buttons">
      ${onMore && html`<button type="button" onClick=${onMore}>${more}</button>`}
      <button type="button" class="primary" autofocus onClick=${onClose}>Close</button>
    </div>`;
}
