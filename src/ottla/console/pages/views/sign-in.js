// Name and password.
import { post } from "../core/api.js";
import { html, useState } from "../core/html.js";
import { again } from "../core/live.js";
import { t } from "../core/texts.js";
import { Field, Problem } from "../core/widgets.js";

export default function SignIn() {
  const [name, setName] = useState("");
  const [password, setPassword] = useState("");
  const [error, setError] = useState(null);
  const send = async (event) => {
    event.preventDefault();
    try {
      await post("/api/session", { name, password });
      again();
      if (location.pathname === "/sign-in") location.assign("/");
      else location.reload();
    } catch (problem) {
      setError(problem);
    }
  };
  return html`<div class="whole" role="main"><form class="sign-in" onSubmit=${send}>
    <h1 class="brand"><img src="/static/icon.svg" alt="" width="26" height="26" /> ottla</h1>
    <${Field} label=${t("Name")}><input name="name" value=${name} autocomplete="username" autofocus onInput=${(event) => setName(event.target.value)} /></${Field}>
    <${Field} label=${t("Password")}><input name="password" type="password" value=${password} autocomplete="current-password" onInput=${(event) => setPassword(event.target.value)} /></${Field}>
    <${Problem} error=${error} />
    <button type="submit" class="button primary" disabled=${!name || !password}>${t("Sign in")}</button>
  </form></div>`;
}
