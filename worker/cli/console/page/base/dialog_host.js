// A dialog that outlives what has opened it: a row may leave its table while its dialog is open, for example because the action has worked.
import {html, useEffect} from "./html.js";
import {createStore, useStore} from "./state.js";

const shown = createStore(null);

// The component gets `onClose`, which removes it and then calls the one given here.
export function showDialog(component, properties = {}) {
  shown.set({component, properties});
}

export function DialogHost() {
  const one = useStore(shown);
  useEffect(() => () => shown.set(null), []); // Another role that logs in does not find it.
  if (!one) return null;
  const close = () => {
    shown.set(null);
    one.properties.onClose?.();
  };
  return html`<${one.component} ...${one.properties} onClose=${close} />`;
}
