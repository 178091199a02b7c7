// Redrive or discard of all events that match a filter: first a preview that counts them, then the action, in steps.
import {post} from "./api.js";
import {AcceptHole, ConfirmCount, Ended, isConfirmed, ReasonField, Running, useRun} from "./act_parts.js";
import {Dialog} from "./dialog.js";
import {isLost} from "./error_bar.js";
import {Form, useForm} from "./form.js";
import {formatCount} from "./format.js";
import {html, useState} from "./html.js";
import {actOnAll} from "./steps.js";
import {Pairs} from "./view.js";

const shownOf = ["inbox", "outbox", "event_type", "key", "sqlstate", "outcome", "reason"]; // of what the console has counted
const titles = {redrive: "Redrive all that match", discard: "Discard all that match"};

// `filter`: members of a preview that say what is meant: inbox with event_type, key, sqlstate and outcome, or outbox. `unit`: what is counted.
export function AllDialog({action, filter, unit = "event", title = titles[action], onClose, children}) {
  const [preview, setPreview] = useState(null);
  const {values, bind} = useForm({reason: "", accept_hole: false});
  const [busy, setBusy] = useState(false);
  const count = async () => setPreview(await post("preview", {action, ...filter, reason: values.reason.trim(),
    ...(action === "discard" ? {accept_hole: values.accept_hole} : {})}));
  return html`<${Dialog} title=${title} busy=${busy} onClose=${onClose}>
    ${preview
      ? html`<${Confirmed} action=${action} preview=${preview} unit=${unit} onBusy=${setBusy} onClose=${onClose} />`
      : html`<${Form} onSubmit=${count} submit="Count" busyText="Counting …" failed="Nothing was changed" onCancel=${onClose}
          disabled=${action === "discard" && !values.reason.trim()}>
        ${children}
        <${Filter} filter=${filter} />
        <${ReasonField} action=${action} ...${bind("reason")} />
        ${action === "discard" && html`<${AcceptHole} ...${bind("accept_hole")} />`}
      </${Form}>`}
  </${Dialog}>`;
}

function Filter({filter}) {
  return html`<${Pairs} entries=${Object.entries(filter).filter(([, value]) => value)} named=${(name) => name.replace("_", " ")} />`;
}

function Confirmed({action, preview, unit, onBusy, onClose}) {
  const run = useRun();
  const [typed, setTyped] = useState("");
  const [sums, setSums] = useState({});
  const [next, setNext] = useState(preview.confirmation);
  const total = Number(preview.count);
  const start = async () => {
    onBusy(true);
    await run.run((stopped) => actOnAllOf(next, sums, (done, left) => {
      setSums(done);
      setNext(left);
    }, stopped));
    onBusy(false);
  };
  const done = sums.affected ?? 0;
  if (run.phase === "running") return html`<${Running} done=${done} total=${total} stopping=${run.stopping} onStop=${run.stop} />`;
  if (run.phase === "ended") {
    return html`<${Ended} error=${run.error} onMore=${next && start} more="Go on" onClose=${onClose}><${Sums} action=${action} sums=${sums} left=${next} error=${run.error} /></${Ended}>`;
  }
  if (!total) return html`<p>Nothing matches.</p><div class="buttons"><button type="button" class="primary" autofocus onClick=${onClose}>Close</button></div>`;
  return html`<${Form} onSubmit=${start} submit=${`${action === "redrive" ? "Redrive" : "Discard"} ${formatCount(total)}`} danger=${action === "discard"} second
      disabled=${!isConfirmed(total, typed)} onCancel=${onClose}>
    <p class="count"><strong>${formatCount(preview.count)}</strong> ${total === 1 ? unit : `${unit}s`} ${total === 1 ? "is" : "are"} to be ${action === "redrive" ? "redriven" : "discarded"}.</p>
    <${Filter} filter=${Object.fromEntries(shownOf.map((name) => [name, preview[name]]))} />
    <p class="muted">What fails from now on is not taken. ${action === "redrive" && preview.inbox ? "It goes in steps, each with its own line in the list of actions; you can stop it." : ""}</p>
    <${ConfirmCount} count=${total} value=${typed} onChange=${setTyped} />
  </${Form}>`;
}

const actOnAllOf = (confirmation, sums, onStep, stopped) =>
  actOnAll(confirmation, (one) => post("all", {confirmation: one}), {onStep, stopped, sums});

function Sums({action, sums, left, error}) {
  const parts = action === "redrive" && sums.applied !== undefined
    ? [["applied", sums.applied], ["without effect", sums.without_effect], ["failed again", sums.failed]]
    : [[action === "redrive" ? "redriven" : "discarded", sums.affected ?? 0]];
  return html`<div class="tiles">${parts.map(([name, value]) => html`<div key=${name} class="tile"><span>${name}</span><strong>${formatCount(value)}</strong></div>`)}</div>
    ${sums.failed > 0 && html`<p>What failed again stays, with its new error. A parked key is tried up to the first event that fails.</p>`}
    ${left && html`<p class="muted">${isLost(error) ? "It is not known whether the last step was done: the list of actions has a line for it if it was." : "The rest was not tried."}</p>`}`;
}
