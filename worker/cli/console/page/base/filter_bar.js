// Filters of a view. They are in its address, so that a view can be linked; a text counts when the user has paused, or left its field.
import {SelectField, TextField} from "./form.js";
import {html, useEffect, useState} from "./html.js";
import {setParameters} from "./route.js";

const pause = 350; // ms after the last key

// fields: [{name, label, hint, options, type}]: with `options` a choice, else a text.
export function FilterBar({fields, parameters, children}) {
  return html`<form class="filters" role="search" onSubmit=${(event) => event.preventDefault()}>
    ${fields.map((field) => html`<${field.options ? ChoiceFilter : TextFilter} key=${field.name} field=${field} value=${parameters[field.name] ?? ""} />`)}
    ${children}
  </form>`;
}

function ChoiceFilter({field: {name, label, options}, value}) {
  return html`<${SelectField} label=${label} options=${options} value=${value} onChange=${(chosen) => setParameters({[name]: chosen})} />`;
}

function TextFilter({field: {name, label, type, placeholder}, value}) {
  const [text, setText] = useState(value);
  const apply = () => text !== value && setParameters({[name]: text});
  useEffect(() => setText(value), [value]); // A link or another filter may have changed it.
  useEffect(() => {
    const timer = setTimeout(apply, pause);
    return () => clearTimeout(timer);
  }, [text]);
  return html`<${TextField} label=${label} type=${type ?? "text"} value=${text} onChange=${setText} onBlur=${apply}
    onKeyDown=${(event) => event.key === "Enter" && apply()} placeholder=${placeholder} spellcheck=${false} autocomplete="off" />`;
}
