// People who may sign in, and their roles.
import { path, put, remove } from "../core/api.js";
import { html, useState } from "../core/html.js";
import { useLive } from "../core/live.js";
import { t } from "../core/texts.js";
import { Badge, Button, Check, Dialog, Empty, Field, Page, Problem, TypeTheName, toast } from "../core/widgets.js";

const ROLES = ["viewer", "operator", "admin"];
const roleWord = (role) => (role === "admin" ? t("admin") : role === "operator" ? t("operator") : t("viewer"));

function GrantFields({ grant, onChange, onRemove }) {
  const set = (key) => (event) => onChange({ ...grant, [key]: event.target.value });
  return html`<div class="card">
    <div class="fields">
      <${Field} label=${t("Role")}><select name="role" value=${grant.role} onChange=${set("role")}>
        ${ROLES.map((role) => html`<option key=${role} value=${role} selected=${role === grant.role}>${roleWord(role)}</option>`)}</select></${Field}>
      <${Field} label=${t("Clusters")}><input name="cluster" value=${grant.cluster} onInput=${set("cluster")} /></${Field}>
      <${Field} label=${t("Topics and groups")}><input name="names" value=${grant.names} onInput=${set("names")} /></${Field}>
    </div>
    <p></p>
    <div class="bar"><${Check} label=${t("May read messages")} checked=${grant.may_read_messages} onChange=${(on) => onChange({ ...grant, may_read_messages: on })} />
      <span class="space"></span>${onRemove ? html`<${Button} kind="small" onClick=${onRemove}>${t("Remove")}</${Button}>` : null}</div>
  </div>`;
}

function PersonDialog({ old, onClose, onDone }) {
  const [name, setName] = useState(old?.name ?? "");
  const [password, setPassword] = useState("");
  const [grants, setGrants] = useState(old?.grants ?? [{ role: "viewer", cluster: "*", names: "*", may_read_messages: false }]);
  const send = async () => {
    await put(path`/api/people/${name}`, { grants, password: password || null });
    toast(t("{0} saved", name));
    onDone();
    onClose();
  };
  const change = (changed) => (grant) => setGrants(grants.map((each, index) => (index === changed ? grant : each)));
  return html`<${Dialog} isWide title=${old ? old.name : t("Add person")} submit=${t("Save")} isReady=${name && grants.length && (old ? !password || password.length >= 8 : password.length >= 8)} onSubmit=${send} onClose=${onClose}>
    <div class="fields">
      ${old ? null : html`<${Field} label=${t("Name")}><input name="name" value=${name} onInput=${(event) => setName(event.target.value)} autocomplete="off" autofocus /></${Field}>`}
      <${Field} label=${t("Password")} hint=${old ? t("Empty: unchanged") : t("At least 8 characters")}>
        <input name="password" type="password" value=${password} autocomplete="new-password" onInput=${(event) => setPassword(event.target.value)} /></${Field}>
    </div>
    <p class="muted">${t("Patterns such as orders.* limit a role to clusters and names.")}</p>
    ${grants.map((grant, index) => html`<${GrantFields} key=${index} grant=${grant} onChange=${change(index)}
      onRemove=${grants.length > 1 ? () => setGrants(grants.filter((_, other) => other !== index)) : null} />`)}
    <div><${Button} onClick=${() => setGrants([...grants, { role: "viewer", cluster: "*", names: "*", may_read_messages: false }])}>${t("Add role")}</${Button}></div>
  </${Dialog}>`;
}

export default function People({ session }) {
  const { data, error, reload } = useLive("/api/people");
  const [asked, setAsked] = useState(null);
  const drop = async () => {
    await remove(path`/api/people/${asked.person.name}`);
    setAsked(null);
    reload();
  };
  return html`<${Page} title=${t("People")} id="people" actions=${html`<${Button} kind="primary" onClick=${() => setAsked({ kind: "change" })}>${t("Add person")}</${Button}>`}>
    <${Problem} error=${error} />
    ${session.is_sign_in_needed ? null : html`<${Empty} title=${t("Sign-in is off")}>
      ${t("This console serves only the user who started it, with the token of its link. With --sign-in, or on another address, users sign in.")}</${Empty}>`}
    <div class="cards">${(data?.people ?? []).map((person) => html`<div class="card" key=${person.name}>
      <h2><bdi>${person.name}</bdi></h2>
      <ul class="list">${person.grants.map((grant, index) => html`<li key=${index}><span><${Badge} kind="info">${roleWord(grant.role)}</${Badge}>
        ${grant.may_read_messages ? html` <${Badge}>${t("reads messages")}</${Badge}>` : null}</span><span class="mono">${grant.cluster} / ${grant.names}</span></li>`)}</ul>
      <p></p>
      <div class="bar"><${Button} onClick=${() => setAsked({ kind: "change", person })}>${t("Change")}</${Button}>
        <${Button} kind="danger" disabled=${person.name === session.person} onClick=${() => setAsked({ kind: "drop", person })}>${t("Remove")}</${Button}></div>
    </div>`)}</div>
    ${asked?.kind === "change" ? html`<${PersonDialog} old=${asked.person} onClose=${() => setAsked(null)} onDone=${reload} />` : null}
    ${asked?.kind === "drop" ? html`<${TypeTheName} title=${t("Remove {0}?", asked.person.name)} submit=${t("Remove")} name=${asked.person.name} onSubmit=${drop} onClose=${() => setAsked(null)} />` : null}
  </${Page}>`;
}
