// The log-in form: alone on the page at first, above the view when a session has ended.
import {logIn, session} from "./api.js";
import {Dialog} from "./dialog.js";
import {Form, TextField, useForm} from "./form.js";
import {html, useEffect, useRef, useState} from "./html.js";
import {useStore} from "./state.js";

function LogInForm({role = "", intro}) {
  const [byToken, setByToken] = useState(false);
  const {values, bind} = useForm({role, password: "", token: ""});
  const ready = byToken ? values.token : values.role && values.password;
  const send = () => logIn(byToken ? {token: values.token.trim()} : {role: values.role, password: values.password});
  return html`<${Form} onSubmit=${send} submit="Log in" busyText="Logging in …" failed="The log-in failed" disabled=${!ready}>
    ${intro && html`<p>${intro}</p>`}
    <div class="tabs" role="group" aria-label="Way to log in">
      <button type="button" aria-pressed=${!byToken} onClick=${() => setByToken(false)}>Role and password</button>
      <button type="button" aria-pressed=${byToken} onClick=${() => setByToken(true)}>Token</button>
    </div>
    ${byToken
      ? html`<${TextField} key="token" label="Token" type="password" autocomplete="off" autofocus ...${bind("token")}
          hint="The text in the file that the console was started with (--token-file)." />`
      : html`<${TextField} key="role" label="Role" autocomplete="username" autocapitalize="none" spellcheck=${false} autofocus=${!role} ...${bind("role")}
          hint="A role of the database. The page shows what it may read, and offers what it may do." />
        <${TextField} key="password" label="Password" type="password" autocomplete="current-password" autofocus=${Boolean(role)} ...${bind("password")} />`}
  </${Form}>`;
}

export function LogInPage() {
  const box = useRef(null);
  // A browser looks at autofocus once, when it loads the page, and this form comes again after each session.
  useEffect(() => box.current.querySelector("[autofocus]")?.focus(), []);
  return html`<main class="login" ref=${box}><h1>Postbox</h1><${LogInForm} /></main>`;
}

// Without a way to close it: there is nothing to do without a session.
export function LogInAgain() {
  const {role} = useStore(session);
  return html`<${Dialog} title="The session has ended">
    <${LogInForm} role=${role} intro="It was not used for a while, has reached its longest life, or has lost its connection. What you see is the last state that was read." />
  </${Dialog}>`;
}
