// Sign-in with name and password; without sign-in, with the token of the link.
import { post } from "../core/api.js";
import { html, useState } from "../core/html.js";
import { reconnect } from "../core/live.js";
import { t } from "../core/texts.js";
import { Field, Problem } from "../core/widgets.js";

// Accepts a whole link and extracts its token.
const tokenOf = (text) => /[?&]token=([^&#\s]+)/.exec(text)?.[1] ?? text.trim();

export default function SignIn({ isByToken }) {
  const [name, setName] = useState("");
  const [password, setPassword] = useState("");
  const [token, setToken] = useState("");
  const [error, setError] = useState(null);
  const send = async (event) => {
    event.preventDefault();
    try {
      await post("/api/session", isByToken ? { token: tokenOf(token) } : { name, password });
      reconnect();
      if (location.pathname === "/sign-in") location.assign("/");
      else location.reload();
    } catch (problem) {
      setError(problem);
    }
  };
  const isReady = isByToken ? token.trim() : name && password;
  return html`<div class="whole" role="main"><form class="sign-in" onSubmit=${send}>
    <h1 class="brand"><img src="/static/icon.svg" alt="" width="26" height="26" /> ottla</h1>
    ${isByToken
      ? html`<p>${t("This console serves the user who started it. Open the link that it printed at its start, or type the token of that link.")}</p>
          <${Field} label=${t("Token")} hint=${t("ottla console link prints the link again")}><input name="token" type="password" value=${token} autocomplete="off" autofocus onInput=${(event) => setToken(event.target.value)} /></${Field}>`
      : html`<${Field} label=${t("Name")}><input name="name" value=${name} autocomplete="username" autofocus onInput=${(event) => setName(event.target.value)} /></${Field}>
          <${Field} label=${t("Password")}><input name="password" type="password" value=${password} autocomplete="current-password" onInput=${(event) => setPassword(event.target.value)} /></${Field}>`}
    <${Problem} error=${error} />
    <button type="submit" class="button primary" disabled=${!isReady}>${t("Sign in")}</button>
  </form></div>`;
}
