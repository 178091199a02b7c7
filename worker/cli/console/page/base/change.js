// Changes of one thing: pause, resume, cancel, finish. The button is there only if the API says that the role may.
import {post, session} from "./api.js";
import {Dialog} from "./dialog.js";
import {Form, SelectField, TextField, useForm} from "./form.js";
import {html, useState} from "./html.js";
import {notify} from "./notices.js";
import {refreshNow} from "./refresh.js";

// Whether the role that has logged in may act on the thing of this row.
export const mayAct = (row) => Boolean(session.get().actions_allowed && row?.may_act);

const untilOptions = [["", "until it is resumed"], ["900", "for 15 minutes"], ["3600", "for 1 hour"], ["14400", "for 4 hours"], ["86400", "for 1 day"],
  ["time", "until a time"]];

const words = {
  pause: {title: "Pause", submit: "Pause", done: "Paused"},
  resume: {title: "Resume", submit: "Resume", done: "Resumed"},
  cancel: {title: "Cancel", submit: "Cancel it", done: "Cancelled", danger: true, leave: "Leave it as it is"},
  finish: {title: "Finish", submit: "Finish it", done: "Finished"},
};

// A button that opens the dialog of a change. `children` says in the dialog what happens; `outcome(answer)` what the answer means.
export function ChangeButton({action, kind, name, label, children, outcome}) {
  const [open, setOpen] = useState(false);
  return html`<button type="button" class="small" aria-label=${`${label ?? words[action].title} ${kind} ${name}`} onClick=${() => setOpen(true)}>
      ${label ?? words[action].title}</button>
    ${open && html`<${ChangeDialog} action=${action} kind=${kind} name=${name} outcome=${outcome} onClose=${() => setOpen(false)}>${children}</${ChangeDialog}>`}`;
}

// Pause or resume, whichever the row needs. It is the same button for the page, so that it keeps the focus.
export function PauseButton({kind, name, row}) {
  if (!mayAct(row)) return null;
  return row.paused
    ? html`<${ChangeButton} action="resume" kind=${kind} name=${name} />`
    : html`<${ChangeButton} action="pause" kind=${kind} name=${name} />`;
}

function ChangeDialog({action, kind, name, children, outcome, onClose}) {
  const {values, bind} = useForm({reason: "", until: "", time: ""});
  const [busy, setBusy] = useState(false);
  const word = words[action];
  const needsReason = action !== "resume";
  const send = async () => {
    const answer = await post("change", {action, kind, name, reason: values.reason.trim(), until: action === "pause" ? endOf(values) : ""});
    notify(outcome?.(answer) ?? `${word.done}: ${kind} ${name}`);
    onClose();
    refreshNow();
  };
  const ready = (!needsReason || values.reason.trim()) && (values.until !== "time" || values.time);
  return html`<${Dialog} title=${`${word.title} ${kind} ${name}`} busy=${busy} onClose=${onClose}>
    <${Form} onSubmit=${send} onBusy=${setBusy} submit=${word.submit} danger=${word.danger} disabled=${!ready} acts failed="Nothing was changed" onCancel=${onClose} cancel=${word.leave}>
      ${children && html`<p>${children}</p>`}
      <${TextField} label=${needsReason ? "Reason" : "Reason (optional)"} autofocus maxlength="500" ...${bind("reason")}
        hint="Others see it beside the thing, and in the list of actions." />
      ${action === "pause" && html`<${SelectField} label="How long" options=${untilOptions} ...${bind("until")} />`}
      ${values.until === "time" && html`<${TextField} label="Until" type="datetime-local" ...${bind("time")} />`}
    </${Form}>
  </${Dialog}>`;
}

// As the API wants it: a time with its zone, or an empty text for no end.
function endOf({until, time}) {
  if (!until) return "";
  return (until === "time" ? new Date(time) : new Date(Date.now() + Number(until) * 1000)).toISOString();
}
