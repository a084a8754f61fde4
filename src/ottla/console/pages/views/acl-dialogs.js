// Dialogs that add, delete and explain access rules, with a preview of changes.
import { path, post } from "../core/api.js";
import { html, useEffect, useState } from "../core/html.js";
import { t } from "../core/texts.js";
import { Badge, Button, Check, Dialog, Field, Note, Problem, toast } from "../core/widgets.js";
import { CLUSTER_NAME, RESOURCES, effectText, operationWord, patternWord, permissionWord, resourceWord, ruleText } from "./acl-labels.js";

const SHOWN_MAX = 50;

function Effects({ preview }) {
  if (!preview) return null;
  const { effects, is_all: isAll, lost } = preview;
  return html`<div id="effects" role="group" aria-label=${t("Changes")} tabindex="0" aria-live="polite">
    ${lost.length ? html`<${Note} kind="bad">${t("The console could no longer change rules: its own login would lose rights. {0}", lost.join("; "))}</${Note}>` : null}
    ${effects.length
      ? html`<ul class="list">${effects.slice(0, SHOWN_MAX).map((effect, index) => html`<li key=${index}><span class="wrap">
          <${Badge} kind=${effect.is_allowed ? "good" : "bad"}>${effect.is_allowed ? "+" : "−"}</${Badge}> <bdi>${effectText(effect)}</bdi></span></li>`)}</ul>
        ${effects.length > SHOWN_MAX || !isAll ? html`<p class="muted">${t("… and more")}</p>` : null}`
      : html`<${Note}>${t("No access changes: other rules, or the default, give the same result.")}</${Note}>`}
  </div>`;
}

// The fields of a resource: type, pattern type and name.
function Resource({ value, onChange, withPattern = true }) {
  const set = (key) => (event) => onChange({ ...value, [key]: event.target.value });
  const choose = (event) => {
    const type = event.target.value;
    onChange({ ...value, resource_type: type, name: type === "CLUSTER" ? CLUSTER_NAME : value.name === CLUSTER_NAME ? "" : value.name, pattern_type: type === "CLUSTER" ? "LITERAL" : value.pattern_type });
  };
  const isCluster = value.resource_type === "CLUSTER";
  return html`<div class="fields">
    <${Field} label=${t("Resource")}><select name="resource" value=${value.resource_type} onChange=${choose}>
      ${RESOURCES.map((type) => html`<option key=${type} value=${type} selected=${type === value.resource_type}>${resourceWord(type)}</option>`)}</select></${Field}>
    <${Field} label=${t("Name")} hint=${withPattern && !isCluster ? t("*: all") : null}>
      <input name="name" value=${value.name} disabled=${isCluster} onInput=${set("name")} autocomplete="off" spellcheck=${false} /></${Field}>
    ${withPattern
      ? html`<${Field} label=${t("The name is")}><select name="pattern" disabled=${isCluster} value=${value.pattern_type} onChange=${set("pattern_type")}>
          ${["LITERAL", "PREFIXED"].map((type) => html`<option key=${type} value=${type} selected=${type === value.pattern_type}>${patternWord(type)}</option>`)}</select></${Field}>`
      : null}
  </div>`;
}

export function AddRules({ cluster, answer, onClose, onDone }) {
  const [rule, setRule] = useState({ resource_type: "TOPIC", name: "", pattern_type: "LITERAL", principal: "", host: "*", permission: "ALLOW" });
  const [operations, setOperations] = useState(new Set(["READ"]));
  const [preview, setPreview] = useState(null);
  const [error, setError] = useState(null);
  const possible = answer.operations[rule.resource_type];
  const roles = Object.entries(answer.roles).filter(([, needed]) => rule.resource_type in needed);
  const chosen = possible.filter((each) => operations.has(each));
  const rules = chosen.map((operation) => ({ ...rule, principal: rule.principal.trim(), operation }));
  const change = (next) => {
    setPreview(null);
    setRule(next);
  };
  const set = (key) => (event) => change({ ...rule, [key]: event.target.value });
  const tick = (operation) => (on) => {
    const next = new Set(operations);
    if (on) next.add(operation);
    else next.delete(operation);
    setPreview(null);
    setOperations(next);
  };
  const take = (role) => {
    setPreview(null);
    setOperations(new Set(answer.roles[role][rule.resource_type]));
  };
  const isReady = Boolean(rule.principal.trim() && rule.name && rule.host && chosen.length);
  const look = async () => {
    setError(null);
    try {
      setPreview(await post(path`/api/clusters/${cluster}/acl-previews`, { add: rules }));
    } catch (problem) {
      setError(problem);
    }
  };
  const send = async () => {
    const made = await post(path`/api/clusters/${cluster}/acls`, { rules });
    toast(t("Rules added: {0}", made.rules.length));
    onDone();
    onClose();
  };
  return html`<${Dialog} isWide title=${t("Add rules")} submit=${t("Add")} isReady=${isReady} onSubmit=${send} onClose=${onClose}>
    <div class="fields">
      <${Field} label=${t("Principal")} hint=${t("User:alice, or User:* for all principals")}><input name="principal" value=${rule.principal} onInput=${set("principal")} placeholder="User:alice" autocomplete="off" spellcheck=${false} autofocus /></${Field}>
      <${Field} label=${t("Is")}><select name="permission" value=${rule.permission} onChange=${set("permission")}>
        ${["ALLOW", "DENY"].map((each) => html`<option key=${each} value=${each} selected=${each === rule.permission}>${permissionWord(each)}</option>`)}</select></${Field}>
      <${Field} label=${t("Host")} hint=${t("*: from anywhere")}><input name="host" value=${rule.host} onInput=${set("host")} autocomplete="off" spellcheck=${false} /></${Field}>
    </div>
    <${Resource} value=${rule} onChange=${change} />
    <fieldset class="checks"><legend>${t("Operations")}</legend>
      ${possible.map((operation) => html`<${Check} key=${operation} label=${operationWord(operation)} checked=${operations.has(operation)} onChange=${tick(operation)} />`)}</fieldset>
    <div class="bar">
      ${roles.map(([role]) => html`<${Button} key=${role} onClick=${() => take(role)}>${role === "producer" ? t("Producer permissions") : t("Consumer permissions")}</${Button}>`)}
      <${Button} disabled=${!isReady} onClick=${look}>${t("Preview changes")}</${Button}>
    </div>
    <${Problem} error=${error} />
    <${Effects} preview=${preview} />
  </${Dialog}>`;
}

export function DeleteRules({ cluster, rules, onClose, onDone }) {
  const [preview, setPreview] = useState(null);
  const [error, setError] = useState(null);
  useEffect(() => {
    post(path`/api/clusters/${cluster}/acl-previews`, { remove: rules }).then(setPreview, setError);
  }, []);
  const send = async () => {
    const gone = await post(path`/api/clusters/${cluster}/acl-deletions`, { rules, may_lose_own_rights: preview.lost.length > 0 });
    toast(t("Rules deleted: {0}", gone.rules.length));
    onDone();
    onClose();
  };
  return html`<${Dialog} isWide title=${t("Delete rules: {0}", rules.length)} submit=${t("Delete")} kind="danger" isReady=${Boolean(preview)} onSubmit=${send} onClose=${onClose}>
    <ul class="list">${rules.slice(0, SHOWN_MAX).map((rule, index) => html`<li key=${index}><bdi class="wrap">${ruleText(rule)}</bdi></li>`)}</ul>
    ${rules.length > SHOWN_MAX ? html`<p class="muted">${t("… and more")}</p>` : null}
    <h3>${t("Changes")}</h3>
    <${Problem} error=${error} />
    ${preview || error ? null : html`<p class="muted">${t("Calculating …")}</p>`}
    <${Effects} preview=${preview} />
  </${Dialog}>`;
}

const reasonWord = (answer, principal) =>
  answer.rule
    ? ruleText(answer.rule)
    : answer.reason === "SUPER_USER"
      ? t("{0} is a super user: rules do not apply.", principal)
      : answer.reason === "NO_RULES"
        ? t("No rule names this resource, and allow.everyone.if.no.acl.found is true.")
        : t("No rule allows it.");

export function ExplainDialog({ cluster, answer, principal = "", onClose }) {
  const [asked, setAsked] = useState({ principal, operation: "READ", resource_type: "TOPIC", name: "", host: "" });
  const [found, setFound] = useState(null);
  const possible = answer.operations[asked.resource_type].filter((each) => each !== "ALL");
  const operation = possible.includes(asked.operation) ? asked.operation : possible[0];
  const change = (next) => {
    setFound(null);
    setAsked(next);
  };
  const set = (key) => (event) => change({ ...asked, [key]: event.target.value });
  const send = async () => {
    const { pattern_type: _, ...question } = asked;
    setFound(await post(path`/api/clusters/${cluster}/acl-questions`, { ...question, principal: asked.principal.trim(), operation }));
  };
  return html`<${Dialog} isWide title=${t("Why is an operation allowed or denied?")} submit=${t("Check")} isReady=${Boolean(asked.principal.trim() && asked.name)} onSubmit=${send} onClose=${onClose}>
    <div class="fields">
      <${Field} label=${t("Principal")}><input name="principal" value=${asked.principal} onInput=${set("principal")} placeholder="User:alice" autocomplete="off" spellcheck=${false} autofocus /></${Field}>
      <${Field} label=${t("Operation")}><select name="operation" value=${operation} onChange=${set("operation")}>
        ${possible.map((each) => html`<option key=${each} value=${each} selected=${each === operation}>${operationWord(each)}</option>`)}</select></${Field}>
      <${Field} label=${t("Host")} hint=${t("Empty: anywhere")}><input name="host" value=${asked.host} onInput=${set("host")} autocomplete="off" spellcheck=${false} /></${Field}>
    </div>
    <${Resource} value=${asked} onChange=${change} withPattern=${false} />
    ${found
      ? html`<div id="answer" aria-live="polite">
          <p><${Badge} kind=${found.is_allowed ? "good" : "bad"}>${found.is_allowed ? t("yes") : t("no")}</${Badge}> <bdi>${reasonWord(found, asked.principal)}</bdi></p>
          ${found.cures.length
            ? html`<p>${t("These changes would reverse the result:")}</p>
                ${found.cures.map((cure, index) => html`<div key=${index}><span>${cure.action === "add" ? t("Add:") : t("Delete:")} <bdi>${ruleText(cure.rule)}</bdi></span><pre>${cure.command}</pre></div>`)}`
            : null}
          ${!found.is_allowed && !found.are_super_users_known ? html`<p class="muted">${t("Apache Kafka does not report its super.users: each of them may do everything.")}</p>` : null}
        </div>`
      : null}
  </${Dialog}>`;
}
