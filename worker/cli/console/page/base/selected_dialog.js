// Redrive or discard of events that were chosen one by one.
import {post} from "./api.js";
import {AcceptHole, ConfirmCount, Ended, isConfirmed, ReasonField, Running, useRun} from "./act_parts.js";
import {Dialog} from "./dialog.js";
import {isLost} from "./error_bar.js";
import {Form, useForm} from "./form.js";
import {formatCount} from "./format.js";
import {html, useState} from "./html.js";
import {Outcome} from "./outcomes.js";
import {actOnEach} from "./steps.js";
import {plural} from "./words.js";

const words = {redrive: {title: "Redrive", done: "redriven"}, discard: {title: "Discard", done: "discarded"}};

// `events`: [{id, name}]. With `outbox` the ids are those of events that could not be published, else of dead letters. `holes`: whether
// discarding may leave holes. `onDone` is called when it has ended, and not where the user leaves before. `children` says what happens.
export function SelectedDialog({action, events, outbox, holes = false, onDone, onClose, children}) {
  const {values, bind} = useForm({reason: "", accept_hole: false, typed: ""});
  const run = useRun();
  const [done, setDone] = useState({looked: 0, affected: 0, outcomes: []});
  const word = words[action];
  const send = (ids) => post("events", {action, reason: values.reason.trim(), accept_hole: values.accept_hole,
    ...(outbox ? {outbox, event_ids: ids} : {dead_letters: ids})});
  const start = () => run.run((stopped) => actOnEach(events.map((one) => one.id), send, {onStep: setDone, stopped})).then(onDone);
  const ready = (action !== "discard" || values.reason.trim()) && isConfirmed(events.length, values.typed);
  const what = events.length === 1 ? events[0].name : `${formatCount(events.length)} events`;
  return html`<${Dialog} title=${`${word.title} ${what}`} busy=${run.phase === "running"} onClose=${onClose}>
    ${run.phase === "ask" && html`<${Form} onSubmit=${start} submit=${word.title} danger=${action === "discard"} disabled=${!ready} onCancel=${onClose}>
      ${children}
      <${ReasonField} action=${action} ...${bind("reason")} />
      ${action === "discard" && holes && html`<${AcceptHole} ...${bind("accept_hole")} />`}
      <${ConfirmCount} count=${events.length} ...${bind("typed")} />
    </${Form}>`}
    ${run.phase === "running" && html`<${Running} done=${done.looked} total=${events.length} stopping=${run.stopping} onStop=${run.stop} />`}
    ${run.phase === "ended" && html`<${Ended} error=${run.error} onClose=${onClose}>
      <p>${plural(done.affected, "event")} ${word.done}${done.looked < events.length ? `; ${formatCount(events.length - done.looked)} ${isLost(run.error) ? "not tried, or in the step whose answer was lost: look at the list of actions" : "not tried"}` : ""}.</p>
      <${Outcomes} events=${events} outcomes=${done.outcomes} />
    </${Ended}>`}
  </${Dialog}>`;
}

function Outcomes({events, outcomes}) {
  if (!outcomes.length) return null;
  const names = new Map(events.map((one) => [one.id, one.name]));
  return html`<div class="table-frame outcomes"><table>
    <thead><tr><th scope="col">Event</th><th scope="col">Outcome</th></tr></thead>
    <tbody>${outcomes.map(({id, outcome, error}) => html`<tr key=${id}><td class="wide"><code>${names.get(id)}</code></td>
      <td><${Outcome} outcome=${outcome} title=${error} />${error && html`<span class="sub">${error}</span>`}</td></tr>`)}</tbody>
  </table></div>`;
}
