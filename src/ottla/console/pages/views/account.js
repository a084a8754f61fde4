// The own account: password and tokens.
import { path, post, put, remove } from "../core/api.js";
import { time } from "../core/format.js";
import { html, useState } from "../core/html.js";
import { useLive } from "../core/live.js";
import { t } from "../core/texts.js";
import { Button, Dialog, Field, Note, Page, Problem, toast } from "../core/widgets.js";

function Password({ onClose }) {
  const [old, setOld] = useState("");
  const [fresh, setFresh] = useState("");
  const send = async () => {
    await put("/api/session/password", { old, new: fresh });
    location.reload();
  };
  return html`<${Dialog} title=${t("Change password")} submit=${t("Change")} isReady=${old && fresh.length >= 8} onSubmit=${send} onClose=${onClose}>
    <${Field} label=${t("Old password")}><input type="password" name="old" value=${old} autocomplete="current-password" onInput=${(event) => setOld(event.target.value)} /></${Field}>
    <${Field} label=${t("New password")} hint=${t("At least 8 characters. You sign in again afterwards.")}>
      <input type="password" name="new" value=${fresh} autocomplete="new-password" onInput=${(event) => setFresh(event.target.value)} /></${Field}>
  </${Dialog}>`;
}

export default function Account({ session }) {
  const { data, error, reload } = useLive(session.is_sign_in_needed ? "/api/tokens" : null);
  const [isChanging, setChanging] = useState(false);
  const [label, setLabel] = useState("");
  const [made, setMade] = useState(null);
  const make = async (event) => {
    event.preventDefault();
    try {
      setMade(await post("/api/tokens", { label }));
    } catch (problem) {
      toast(problem.message, "bad");
    }
    setLabel("");
    reload();
  };
  const forget = async (token) => {
    await remove(path`/api/tokens/${token.token_id}`);
    reload();
  };
  return html`<${Page} title=${session.person} id="account" actions=${html`<${Button} onClick=${() => setChanging(true)}>${t("Change password")}</${Button}>`}>
    <${Problem} error=${error} />
    <div class="card">
      <h2>${t("Tokens for programs")}</h2>
      <p class="muted">${t("Programs send a token instead of a password: Authorization: Bearer …")}</p>
      <form class="bar" onSubmit=${make}>
        <input name="label" value=${label} placeholder=${t("Purpose")} aria-label=${t("Purpose")} onInput=${(event) => setLabel(event.target.value)} />
        <button type="submit" class="button primary" disabled=${!label}>${t("Create token")}</button>
      </form>
      ${made ? html`<${Note} kind="good">${t("Copy the token now: it is not shown again.")} <code>${made.token}</code></${Note}>` : null}
      <ul class="list">${(data?.tokens ?? []).map((token) => html`<li key=${token.token_id}><bdi>${token.label}</bdi>
        <span class="muted">${time(token.at_ms)} <${Button} kind="small" onClick=${() => forget(token)}>${t("Forget")}</${Button}></span></li>`)}</ul>
    </div>
    ${isChanging ? html`<${Password} onClose=${() => setChanging(false)} />` : null}
  </${Page}>`;
}
