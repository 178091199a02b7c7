// A payload in the forms that it can be read in, and attributes. Both come from others: they are shown as texts and never as markup.
import {base64OfBytes, bytesOfBase64, bytesOfText, hexDump} from "./bytes.js";
import {formatBytes} from "./format.js";
import {html, useState} from "./html.js";
import {compactJson, prettyJson} from "./json.js";
import {CopyButton, Pairs} from "./view.js";

const mostHex = 4096; // bytes: a dump is four times as long as what it shows

const forms = {
  json: {title: "JSON", of: (payload) => prettyJson(payload.payload)},
  text: {title: "Text", of: (payload) => payload.payload},
  hex: {title: "Hex", of: (payload) => hexDump(bytesOf(payload).subarray(0, mostHex))},
  base64: {title: "Base64", of: (payload) => (payload.encoding === "base64" ? payload.payload : base64OfBytes(bytesOf(payload)))},
};

const formsOf = {json: ["json", "text", "hex", "base64"], text: ["text", "hex", "base64"], base64: ["hex", "base64"]};

const bytesOf = ({encoding, payload}) => (encoding === "base64" ? bytesOfBase64(payload) : bytesOfText(payload));

// `payload` has encoding, payload, bytes and truncated, as the API gives them.
export function Payload({payload}) {
  const offered = formsOf[payload.encoding];
  const [chosen, choose] = useState(null);
  if (!offered) return html`<p class="muted">There is no payload.</p>`;
  const form = offered.includes(chosen) ? chosen : offered[0];
  const text = forms[form].of(payload);
  return html`<div class="payload">
    <div class="payload-head">
      <h3>Payload <span class="muted">${formatBytes(payload.bytes)}</span></h3>
      <div class="tabs small-tabs" role="group" aria-label="Form of the payload">
        ${offered.map((one) => html`<button key=${one} type="button" class="small" aria-pressed=${one === form} onClick=${() => choose(one)}>${forms[one].title}</button>`)}
      </div>
      <${CopyButton} text=${text} />
    </div>
    ${payload.truncated && html`<p class="muted">Only its beginning is shown.</p>`}
    ${form === "hex" && bytesOf(payload).length > mostHex && html`<p class="muted">The first ${formatBytes(mostHex)}.</p>`}
    <pre class="content" tabindex="0" aria-label="Payload">${text}</pre>
  </div>`;
}

export function Attributes({attributes}) {
  const entries = Object.entries(attributes ?? {});
  if (!entries.length) return null;
  return html`<div class="attributes"><h3>Attributes</h3>
    <${Pairs} entries=${entries.map(([name, value]) => [name, compactJson(value)])} named=${(name) => html`<code>${name}</code>`} />
  </div>`;
}
