// The way of an event: emitted, published, received, applied; and what went wrong. By its id, or all events of a key or a trace.
import {get} from "../base/api.js";
import {Empty, ErrorBar, Loading} from "../base/error_bar.js";
import {SelectField, TextField} from "../base/form.js";
import {html, useEffect, useState} from "../base/html.js";
import {usePolled} from "../base/refresh.js";
import {linkTo} from "../base/route.js";
import {plural} from "../base/words.js";
import {ViewHead} from "../base/view.js";
import {gather} from "./way_events.js";
import {EventCard} from "./way_card.js";

const kinds = [["id", "Event id"], ["key", "Key"], ["trace", "Trace id"]];
const placeNames = ["publication", "inbox"];
const mostOpen = 3; // events whose steps are shown at first

function EventWay({parameters}) {
  const kind = kinds.map(([name]) => name).find((name) => parameters[name]);
  const asked = kind && {[kind]: parameters[kind], ...Object.fromEntries(placeNames.map((name) => [name, parameters[name]]))};
  return html`<${ViewHead} title="Way of an event" />
    <${Search} kind=${kind ?? "id"} parameters=${parameters} />
    ${asked
      ? html`<${Result} key=${JSON.stringify(asked)} asked=${asked} />`
      : html`<${Empty} title="Look for an event">By its id all outboxes and inboxes are looked through. By key or trace, the newest 100 000 events of each outbox are.</${Empty}>`}`;
}

// What is searched for is in the address. It may take half a minute, so it begins when the user says so.
function Search({kind, parameters}) {
  const [by, setBy] = useState(kind);
  const [text, setText] = useState(parameters[kind] ?? "");
  const [places, setPlaces] = useState({publication: parameters.publication ?? "", inbox: parameters.inbox ?? ""});
  useEffect(() => {
    setBy(kind);
    setText(parameters[kind] ?? "");
  }, [kind, parameters[kind]]);
  const search = (event) => {
    event.preventDefault();
    if (text.trim()) location.hash = linkTo("event", {[by]: by === "key" ? text : text.trim(), ...places});
  };
  const place = (name) => (value) => setPlaces((old) => ({...old, [name]: value}));
  return html`<form class="filters" role="search" onSubmit=${search}>
    <${SelectField} label="By" options=${kinds} value=${by} onChange=${setBy} />
    <div class="grow"><${TextField} label=${kinds.find(([name]) => name === by)[1]} value=${text} onChange=${setText} spellcheck=${false} autocomplete="off" /></div>
    <${TextField} label="Only publication" value=${places.publication} onChange=${place("publication")} spellcheck=${false} autocomplete="off" />
    <${TextField} label="Only inbox" value=${places.inbox} onChange=${place("inbox")} spellcheck=${false} autocomplete="off" />
    <button type="submit" class="primary" disabled=${!text.trim()}>Search</button>
  </form>`;
}

function Result({asked}) {
  const {data, error, busy, reload} = usePolled((signal) => get("event", asked, signal), [], {once: true});
  if (error && !data) return html`<${ErrorBar} error=${error} onRetry=${reload} />`;
  if (!data) return html`<${Loading} />`;
  const events = gather(data);
  return html`<${ErrorBar} error=${error} onRetry=${reload} />
    <${Limits} way=${data} />
    ${events.length === 0 && !busy && html`<${Empty} title="Nothing is known of it here">Events leave outboxes and inboxes after their retention.
      ${asked.trace ? " An inbox does not store traces: search by the id of the event." : ""}</${Empty}>`}
    ${events.length > 1 && html`<p class="muted">${plural(events.length, "event")}, the newest first.</p>`}
    <div class="stack">${events.map((one, place) => html`<${EventCard} key=${one.id} event=${one} open=${place < mostOpen} />`)}</div>`;
}

// What the answer does not have, and why: an empty place is not the same as one that was not looked into.
function Limits({way}) {
  if (way.complete) return null;
  return html`<div class="bar bar-warning" role="status"><strong>This is not all.</strong>
    ${way.not_read.length
      ? html`<ul class="plain-list">${way.not_read.map(({place, reason}) => html`<li key=${place}><code>${place}</code> was not read: ${reason}</li>`)}</ul>`
      : html`<span>There are more events than the 200 that are shown of each place. Search by an id, or in one place only.</span>`}
  </div>`;
}

export const view = {path: "event", title: "Way of an event", group: "Events", key: "e", Component: EventWay};
