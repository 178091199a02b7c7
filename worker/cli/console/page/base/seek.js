// Moves a subscription back or forward. A preview says what the broker does with it, before anything is done.
import {post} from "./api.js";
import {Dialog} from "./dialog.js";
import {CheckField, Form, SelectField, TextField, useForm} from "./form.js";
import {formatTime} from "./format.js";
import {html, useState} from "./html.js";
import {notify} from "./notices.js";
import {refreshNow} from "./refresh.js";

export function SeekDialog({subscription, onClose}) {
  const form = useForm({to: "time", time: "", snapshot: "", reason: "", skip: false});
  const [preview, setPreview] = useState(null);
  const [busy, setBusy] = useState(false);
  const order = orderOf(subscription, form.values);
  const look = async () => {
    form.set("skip", false); // Another target is accepted anew.
    setPreview(await post("preview", {action: "seek", ...order}));
  };
  const seek = async () => {
    await post("seek", {...order, skip: form.values.skip});
    notify(`${subscription} was moved`);
    onClose();
    refreshNow();
  };
  return html`<${Dialog} title=${`Seek subscription ${subscription}`} busy=${busy} onClose=${onClose}>
    ${preview
      ? html`<${Confirm} key="confirm" ...${{preview, form, seek, setBusy}} onBack=${() => setPreview(null)} />`
      : html`<${Choose} key="choose" ...${{form, look, setBusy, onClose}} />`}
  </${Dialog}>`;
}

function orderOf(subscription, {to, time, snapshot, reason}) {
  const target = to === "time" ? {time: isoOf(time)} : {snapshot: snapshot.trim()};
  return {subscription, reason: reason.trim(), ...target};
}

// Empty where a field has no time, or one of a year that no computer knows.
function isoOf(time) {
  const date = new Date(time);
  return Number.isNaN(date.valueOf()) ? "" : date.toISOString();
}

function Choose({form: {values, bind}, look, setBusy, onClose}) {
  const ready = values.reason.trim() && (values.to === "time" ? isoOf(values.time) : values.snapshot.trim());
  return html`<${Form} submit="Go on" onSubmit=${look} onBusy=${setBusy} disabled=${!ready} failed="The seek is not possible" onCancel=${onClose}>
    <p>Messages that were published before count as acknowledged, later ones as not acknowledged.</p>
    <${SelectField} label="To" options=${[["time", "a time"], ["snapshot", "a snapshot"]]} ...${bind("to")} />
    ${values.to === "time"
      ? html`<${TextField} key="time" label="Time" type="datetime-local" step="1" ...${bind("time")} />`
      : html`<${TextField} key="snapshot" label="Snapshot" ...${bind("snapshot")} />`}
    <${TextField} label="Reason" maxlength="500" ...${bind("reason")} hint="It is stored with the action." />
  </${Form}>`;
}

function Confirm({preview, form: {values, bind}, seek, setBusy, onBack}) {
  const ready = !preview.needs_skip || values.skip;
  return html`<${Form} submit="Seek" danger=${preview.may_skip} second acts onSubmit=${seek} onBusy=${setBusy} disabled=${!ready} failed="The seek" onCancel=${onBack} cancel="Back">
    <p>${preview.pubsub_subscription} is moved to ${preview.time ? formatTime(preview.time) : `the snapshot ${preview.snapshot}`}.</p>
    ${preview.warnings.map((text) => html`<div key=${text} class="bar bar-warning">${text}</div>`)}
    ${preview.needs_skip && html`<${CheckField} label="Skip messages that were not applied yet" ...${bind("skip")} />`}
  </${Form}>`;
}
