// The alert rules of a cluster: condition, limit, receivers; and silences.
import { path, post, put, remove } from "../core/api.js";
import { count, time } from "../core/format.js";
import { html, useState } from "../core/html.js";
import { useLive } from "../core/live.js";
import { Link } from "../core/router.js";
import { t } from "../core/texts.js";
import { Badge, Button, Check, Dialog, Empty, Field, Note, Problem, toast } from "../core/widgets.js";
import { KINDS, conditionWords, kindWords } from "./alert-labels.js";

const NEW = { when: "verdict", to: [], for: "0s", group: "*", topic: "", pipeline: "*", status: ["ERR"], above: 0, below: "10 %", within: "5m" };
const OF_GROUPS = ["verdict", "lag", "lag-seconds"];
const OF_TOPICS = ["leaderless", "under-replicated", "under-min-isr", "dead-letters"];
const WITH_LIMIT = { lag: () => t("Lag above (records)"), "lag-seconds": () => t("Lag above (seconds)"), "dead-letters": () => t("More dead letters than"), pipeline: () => t("Lag above (records); 0: any") };

// Only the fields that apply to this kind.
function Limits({ rule, set }) {
  const text = (key) => (event) => set({ [key]: event.target.value });
  const kind = rule.when;
  return html`<div class="fields">
    ${kind === "verdict"
      ? html`<fieldset class="checks"><legend>${t("Verdict")}</legend>${["ERR", "WARN"].map((word) => html`<${Check} key=${word} label=${word} checked=${rule.status.includes(word)}
          onChange=${(on) => set({ status: ["ERR", "WARN"].filter((each) => (each === word ? on : rule.status.includes(each))) })} />`)}</fieldset>`
      : null}
    ${WITH_LIMIT[kind]
      ? html`<${Field} label=${WITH_LIMIT[kind]()}><input name="above" type="number" min="0" step="any" value=${rule.above} onInput=${(event) => set({ above: Number(event.target.value) })} /></${Field}>`
      : null}
    ${kind === "disk" ? html`<${Field} label=${t("Free space below")} hint=${t("A share (10 %) or a size (50 GiB)")}><input name="below" value=${rule.below} onInput=${text("below")} /></${Field}>` : null}
    ${kind === "dead-letters" ? html`<${Field} label=${t("Within")} hint=${t("30s, 5m, 1h")}><input name="within" value=${rule.within} onInput=${text("within")} /></${Field}>` : null}
    ${OF_GROUPS.includes(kind) ? html`<${Field} label=${t("Groups")} hint=${t("A pattern such as billing*")}><input name="group" value=${rule.group} onInput=${text("group")} spellcheck="false" /></${Field}>` : null}
    ${OF_TOPICS.includes(kind) ? html`<${Field} label=${t("Topics")} hint=${kind === "dead-letters" ? t("Empty: *-dead-letters") : t("Empty: all topics")}><input name="topic" value=${rule.topic} onInput=${text("topic")} spellcheck="false" /></${Field}>` : null}
    ${kind === "pipeline" ? html`<${Field} label=${t("Pipelines")} hint=${t("A pattern such as billing*")}><input name="pipeline" value=${rule.pipeline} onInput=${text("pipeline")} spellcheck="false" /></${Field}>` : null}
    <${Field} label=${t("For at least")} hint=${t("30s, 5m, 1h")}><input name="for" value=${rule.for} onInput=${text("for")} /></${Field}>
  </div>`;
}

function RuleDialog({ cluster, old, data, session, onClose, onDone }) {
  const [name, setName] = useState(old?.name ?? "");
  const [rule, setRule] = useState(old?.rule ?? { ...NEW, to: data.receivers });
  const set = (change) => setRule({ ...rule, ...change });
  const kinds = KINDS.filter((kind) => kind !== "pipeline" || data.has_pipelines);
  const send = async () => {
    await put(path`/api/clusters/${cluster}/alert-rules/${name}`, { rule, before: old?.rule ?? null });
    toast(t("Rule {0} saved", name));
    onDone();
    onClose();
  };
  return html`<${Dialog} isWide title=${old ? t("Rule {0}", old.name) : t("Add rule")} submit=${t("Save")} isReady=${name && (rule.when !== "verdict" || rule.status.length)} onSubmit=${send} onClose=${onClose}>
    <div class="fields">
      ${old ? null : html`<${Field} label=${t("Name")}><input name="name" value=${name} onInput=${(event) => setName(event.target.value)} autocomplete="off" maxlength="100" autofocus /></${Field}>`}
      <${Field} label=${t("Condition")}><select name="when" value=${rule.when} onChange=${(event) => set({ when: event.target.value })}>
        ${kinds.map((kind) => html`<option key=${kind} value=${kind} selected=${kind === rule.when}>${kindWords(kind)}</option>`)}</select></${Field}>
    </div>
    <${Limits} rule=${rule} set=${set} />
    <fieldset class="checks"><legend>${t("Receivers to notify")}</legend>
      ${data.receivers.length
        ? html`${data.receivers.map((each) => html`<${Check} key=${each} label=${html`<bdi>${each}</bdi>`} checked=${rule.to.includes(each)}
            onChange=${(on) => set({ to: on ? [...rule.to, each] : rule.to.filter((other) => other !== each) })} />`)}`
        : html`<span class="field-hint">${t("There are no receivers yet: alerts appear here only.")} ${session.is_admin ? html`<${Link} to=${path`/c/${cluster}/alerts/receivers`}>${t("Add receiver")}</${Link}>` : null}</span>`}
    </fieldset>
  </${Dialog}>`;
}

function Silences({ cluster, silences, mayChange, onDone }) {
  if (!silences.length) return null;
  const end = async (silence) => {
    await endSilence(cluster, silence.id);
    onDone();
  };
  return html`<section class="card"><h2>${t("Silences")}</h2><ul class="list">${silences.map((each) => html`<li key=${each.id}>
    <span><bdi>${each.rule}</bdi>${each.subject === "*" ? null : html`: <bdi>${each.subject}</bdi>`}</span>
    <span class="bar"><span class="muted">${t("until {0}", time(each.until_ms))}</span>${mayChange ? html`<${Button} kind="small" onClick=${() => end(each)}>${t("End now")}</${Button}>` : null}</span></li>`)}</ul></section>`;
}

export function Rules({ cluster, may, session }) {
  const { data, error, reload } = useLive(path`/api/clusters/${cluster}/alert-rules`, ["alerts"], cluster);
  const [asked, setAsked] = useState(null);
  const close = () => setAsked(null);
  const mayChange = may("operator");
  const drop = async () => {
    await remove(path`/api/clusters/${cluster}/alert-rules/${asked.row.name}`);
    toast(t("Rule {0} deleted", asked.row.name));
    reload();
    close();
  };
  if (!data) return html`<${Problem} error=${error} />`;
  const add = mayChange ? html`<${Button} kind="primary" onClick=${() => setAsked({ kind: "change" })}>${t("Add rule")}</${Button}>` : null;
  return html`<${Problem} error=${error} />
    ${data.rules.length ? html`<div class="bar">${add}</div>` : html`<${Empty} title=${t("No rules yet")}>${t("A rule defines a condition and its receivers: a lagging group, a broker that is down, a disk that is almost full.")}<p></p>${add}</${Empty}>`}
    <${Silences} cluster=${cluster} silences=${data.silences} mayChange=${mayChange} onDone=${reload} />
    <div class="cards">${data.rules.map((row) => html`<div class="card" key=${row.name} data-rule=${row.name}>
      <h2><bdi>${row.name}</bdi> ${row.open ? html`<${Badge} kind="bad">${t("{0} open", count(row.open))}</${Badge}>` : html`<${Badge} kind="good">${t("no open alerts")}</${Badge}>`}</h2>
      <p>${kindWords(row.rule.when)}</p>
      <p class="muted">${conditionWords(row.rule)}${/^0/.test(String(row.rule.for)) ? "" : ` · ${t("for {0}", row.rule.for)}`}</p>
      <p class="muted">${row.rule.to.length ? html`${t("Notifies")} <bdi>${row.rule.to.join(", ")}</bdi>` : t("No receivers")}</p>
      ${mayChange
        ? html`<div class="bar"><${Button} onClick=${() => setAsked({ kind: "change", row })}>${t("Change")}</${Button}>
            <${Button} onClick=${() => setAsked({ kind: "silence", row })}>${t("Silence")}</${Button}>
            <${Button} kind="danger" onClick=${() => setAsked({ kind: "drop", row })}>${t("Delete")}</${Button}></div>`
        : null}
    </div>`)}</div>
    ${asked?.kind === "change" ? html`<${RuleDialog} cluster=${cluster} old=${asked.row} data=${data} session=${session} onClose=${close} onDone=${reload} />` : null}
    ${asked?.kind === "silence" ? html`<${SilenceDialog} cluster=${cluster} rule=${asked.row.name} onClose=${close} onDone=${reload} />` : null}
    ${asked?.kind === "drop"
      ? html`<${Dialog} title=${t("Delete rule {0}?", asked.row.name)} submit=${t("Delete")} kind="danger" onSubmit=${drop} onClose=${close}>
          <${Note}>${t("Its open alerts close, and their receivers are notified.")}</${Note}></${Dialog}>`
      : null}`;
}

const MINUTES = [30, 60, 240, 1440, 10080];
const minutesText = (minutes) => (minutes < 60 ? t("{0} min", minutes) : t("{0} h", minutes / 60));

// Adds a silence for a rule, or for one of its alerts.
export function SilenceDialog({ cluster, rule, subject = "*", onClose, onDone }) {
  const [minutes, setMinutes] = useState(60);
  const send = async () => {
    await post(path`/api/clusters/${cluster}/alert-silences`, { rule, subject, minutes: Number(minutes) });
    toast(t("Silenced for {0}", minutesText(minutes)));
    onDone();
    onClose();
  };
  return html`<${Dialog} title=${t("Silence {0}", subject === "*" ? rule : `${rule}: ${subject}`)} submit=${t("Silence")} onSubmit=${send} onClose=${onClose}>
    <${Field} label=${t("Duration")}><select name="minutes" value=${minutes} onChange=${(event) => setMinutes(event.target.value)}>
      ${MINUTES.map((each) => html`<option key=${each} value=${each} selected=${each === Number(minutes)}>${minutesText(each)}</option>`)}</select></${Field}>
    <p class="muted">${t("Alerts still open and close here, but no notification is sent when one opens. An alert that is still open when the silence ends is sent then.")}</p>
  </${Dialog}>`;
}

export const endSilence = (cluster, silence) => remove(path`/api/clusters/${cluster}/alert-silences/${silence}`);
