// The page: who has logged in, which view is shown, and what surrounds it.
import {findSession, session} from "./base/api.js";
import {DialogHost} from "./base/dialog_host.js";
import {Empty, ErrorBar, Loading} from "./base/error_bar.js";
import {html, render, useEffect, useRef, useState} from "./base/html.js";
import {listenToKeys} from "./base/keys.js";
import {LogInAgain, LogInPage} from "./base/login.js";
import {Notices} from "./base/notices.js";
import {listenToRoute, useRoute} from "./base/route.js";
import {Header, KeyHelp, Navigation, useToggle} from "./base/shell.js";
import {useStore} from "./base/state.js";
import {applyTheme} from "./base/theme.js";
import {views} from "./views/index.js";

const secondsToFind = 5; // between attempts while the console does not answer

function Page() {
  const {state} = useStore(session);
  const [error, setError] = useState(null);
  const find = () => {
    findSession().then(() => setError(null), (caught) => setError(Object.assign(caught, {tried: true})));
  };
  useEffect(find, []);
  useEffect(() => {
    const timer = error && setTimeout(find, secondsToFind * 1000);
    return () => clearTimeout(timer);
  }, [error]);
  if (error) return html`<main class="login"><h1>Postbox</h1><${ErrorBar} error=${error} onRetry=${find} /></main>`;
  if (state === "unknown") return html`<${Loading} />`;
  if (state === "out") return html`<${LogInPage} />`;
  return html`<${Shell} />${state === "ended" && html`<${LogInAgain} />`}`;
}

function Shell() {
  const {role, may} = useStore(session);
  const offered = views.filter((one) => !one.needs || may?.[one.needs] !== false);
  const {path, parameters} = useRoute();
  const [help, toggleHelp, closeHelp] = useToggle();
  const [menu, toggleMenu, closeMenu] = useToggle();
  const main = useRef(null);
  useEffect(() => listenToKeys(offered, toggleHelp), [may]);
  const view = views.find((one) => one.path === path);
  useEffect(() => {
    document.title = view ? `${view.title} – Postbox` : "Postbox";
    main.current.scrollTo?.(0, 0);
  }, [path]);
  const skip = (event) => {
    event.preventDefault(); // The hash is the address of the view.
    main.current.focus();
  };
  // Another role sees other data, so nothing of a view stays.
  return html`<a class="skip" href="#main" onClick=${skip}>Skip to the view</a>
    <${Header} onMenu=${toggleMenu} menuOpen=${menu} onHelp=${toggleHelp} />
    <div class="columns">
      <${Navigation} views=${offered} path=${path} open=${menu} onChoose=${closeMenu} />
      <main id="main" ref=${main} tabindex="-1" key=${`${role} ${path}`}>
        ${view ? html`<${view.Component} parameters=${parameters} />` : html`<${Empty} title="There is no such view">Choose one from the list.</${Empty}>`}
      </main>
    </div>
    <${Notices} />
    <${DialogHost} key=${role} />
    ${help && html`<${KeyHelp} views=${offered} onClose=${closeHelp} />`}`;
}

applyTheme();
listenToRoute();
render(html`<${Page} />`, document.getElementById("root"));
