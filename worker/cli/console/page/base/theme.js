// Light and dark: as the system says, unless the user has chosen.
import {html} from "./html.js";
import {createKeptStore, useStore} from "./state.js";

const themes = ["auto", "light", "dark"];
const names = {auto: "System", light: "Light", dark: "Dark"};
export const theme = createKeptStore("theme", themes, "auto");

export function applyTheme() {
  const apply = (value) => {
    document.documentElement.dataset.theme = value;
  };
  apply(theme.get());
  theme.subscribe(apply);
}

export function ThemeSwitch() {
  const value = useStore(theme);
  return html`<select aria-label="Colors" title="Colors" value=${value} onChange=${(event) => theme.set(event.currentTarget.value)}>
    ${themes.map((one) => html`<option key=${one} value=${one}>${names[one]}</option>`)}
  </select>`;
}
