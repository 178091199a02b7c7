// Fields with labels, and a form that shows what its submission failed with.
import {ErrorBar} from "./error_bar.js";
import {html, useEffect, useId, useRef, useState} from "./html.js";

// ms for which the button of a second step does nothing: a double click on the first one ends where the second one appears.
const timeToLook = 600;

// `values` is an object of texts and booleans; `bind(name)` gives a field its value and its handler.
export function useForm(initial) {
  const [values, setValues] = useState(initial);
  const set = (name, value) => setValues((old) => ({...old, [name]: value}));
  const bind = (name) => ({value: values[name], onChange: (value) => set(name, value)});
  return {values, set, bind, setValues};
}

export function TextField({label, hint, value, onChange, type = "text", long = false, ...rest}) {
  const id = useId();
  const input = {id, value, onInput: (event) => onChange(event.currentTarget.value), "aria-describedby": hint ? `${id}-hint` : undefined, ...rest};
  return html`<div class="field">
    <label for=${id}>${label}</label>
    ${long ? html`<textarea rows="3" ...${input}></textarea>` : html`<input type=${type} ...${input} />`}
    ${hint && html`<small id=${`${id}-hint`}>${hint}</small>`}
  </div>`;
}

// options: [[value, text], ...]
export function SelectField({label, hint, value, onChange, options, ...rest}) {
  const id = useId();
  return html`<div class="field">
    <label for=${id}>${label}</label>
    <select id=${id} value=${value} aria-describedby=${hint ? `${id}-hint` : undefined} onChange=${(event) => onChange(event.currentTarget.value)} ...${rest}>
      ${options.map(([one, text]) => html`<option key=${one} value=${one}>${text}</option>`)}
    </select>
    ${hint && html`<small id=${`${id}-hint`}>${hint}</small>`}
  </div>`;
}

export function CheckField({label, hint, value, onChange, ...rest}) {
  return html`<label class="check"><input type="checkbox" checked=${value} onChange=${(event) => onChange(event.currentTarget.checked)} ...${rest} />
    <span>${label}${hint && html`<small>${hint}</small>`}</span></label>`;
}

// `onSubmit()` returns a promise. While it runs the button is off; what it throws is shown. `acts`: it changes something, so an answer that is
// lost leaves open whether it was done. `second`: the step behind another one of the same dialog, which confirms it.
export function Form({onSubmit, submit, busyText = "Working …", danger = false, disabled = false, failed = "This failed", onCancel, cancel = "Cancel", acts = false,
  second = false, onBusy, children}) {
  const [busy, setBusy] = useState(false);
  const [error, setError] = useState(null);
  const [looked, setLooked] = useState(!second);
  const box = useRef(null);
  const sent = useRef(false); // `busy` is that of the last time it was drawn
  useEffect(() => {
    if (!second) return undefined;
    (box.current.querySelector("input, select") ?? box.current.querySelector("button[type=button]"))?.focus();
    const timer = setTimeout(() => setLooked(true), timeToLook);
    return () => clearTimeout(timer);
  }, []);
  const change = (value) => {
    setBusy(value);
    onBusy?.(value);
  };
  const send = async (event) => {
    event.preventDefault();
    if (sent.current || disabled || !looked) return;
    sent.current = true;
    change(true);
    setError(null);
    try {
      await onSubmit();
    } catch (caught) {
      setError(caught);
    }
    sent.current = false;
    change(false);
  };
  return html`<form ref=${box} onSubmit=${send}>
    ${children}
    <${ErrorBar} error=${error} title=${failed} acts=${acts} />
    <div class="buttons">
      ${onCancel && html`<button type="button" disabled=${busy} onClick=${onCancel}>${cancel}</button>`}
      <button type="submit" class=${danger ? "danger" : "primary"} disabled=${busy || disabled || !looked}>${busy ? busyText : submit}</button>
    </div>
  </form>`;
}
