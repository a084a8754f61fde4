// The rules of a cluster: what is looked at, from when on it counts, who is told.
import { path, put, remove } from "../core/api.js";
import { count, time } from "../core/format.js";
import { html, useState } from "../core/html.js";
import { useLive } from "../core/live.js";
import { Link } from "../core/router.js";
import { t } from "../core/texts.js";
import { Badge, Button, Check, Dialog, Empty, Field, Note, Problem, toast } from "../core/widgets.js";
import { KINDS, conditionWords, kindWords } from "./alert-words.js";
import { SilenceDialog, endSilence } from "./silence.js";

const NEW = { when: "verdict", to: [], for: "0s", group: "*", topic: "", pipeline: "*", status: ["ERR"], above: 0, below: "10 %", within: "5m" };
const OF_GROUPS = ["verdict", "lag", "lag-seconds"];
const OF_TOPICS = ["leaderless", "under-replicated", "under-min-isr", "dead-letters"];
const WITH_LIMIT = { lag: () => t("More than so many records"), "lag-seconds": () => t("More than so many seconds"), "dead-letters": () => t("More than so many dead letters"), pipeline: () => t("More than so many records behind; 0: no matter") };

// Only the fields that mean something for this kind.
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
    ${kind === "disk" ? html`<${Field} label=${t("Less is left than")} hint=${t("A share (10 %) or a size (50 GiB)")}><input name="below" value=${rule.below} onInput=${text("below")} /></${Field}>` : null}
    ${kind === "dead-letters" ? html`<${Field} label=${t("Within")} hint=${t("30s, 5m, 1h")}><input name="within" value=${rule.within} onInput=${text("within")} /></${Field}>` : null}
    ${OF_GROUPS.includes(kind) ? html`<${Field} label=${t("Groups")} hint=${t("A pattern such as billing*")}><input name="group" value=${rule.group} onInput=${text("group")} spellcheck="false" /></${Field}>` : null}
    ${OF_TOPICS.includes(kind) ? html`<${Field} label=${t("Topics")} hint=${kind === "dead-letters" ? t("Empty: *-dead-letters") : t("Empty: all topics")}><input name="topic" value=${rule.topic} onInput=${text("topic")} spellcheck="false" /></${Field}>` : null}
    ${kind === "pipeline" ? html`<${Field} label=${t("Pipelines")} hint=${t("A pattern such as billing*")}><input name="pipeline" value=${rule.pipeline} onInput=${text("pipeline")} spellcheck="false" /></${Field}>` : null}
    <${Field} label=${t("Lasts at least")} hint=${t("30s, 5m, 1h")}><input name="for" value=${rule.for} onInput=${text("for")} /></${Field}>
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
      <${Field} label=${t("When")}><select name="when" value=${rule.when} onChange=${(event) => set({ when: event.target.value })}>
        ${kinds.map((kind) => html`<option key=${kind} value=${kind} selected=${kind === rule.when}>${kindWords(kind)}</option>`)}</select></${Field}>
    </div>
    <${Limits} rule=${rule} set=${set} />
    <fieldset class="checks"><legend>${t("Who is told")}</legend>
      ${data.receivers.length
        ? html`${data.receivers.map((each) => html`<${Check} key=${each} label=${html`<bdi>${each}</bdi>`} checked=${rule.to.includes(each)}
            onChange=${(on) => set({ to: on ? [...rule.to, each] : rule.to.filter((other) => other !== each) })} />`)}`
        : html`<span class="field-hint">${t("There are no receivers yet: alerts are shown here, and nobody is told.")} ${session.is_admin ? html`<${Link} to=${path`/c/${cluster}/alerts/receivers`}>${t("Add receiver")}</${Link}>` : null}</span>`}
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
    ${data.rules.length ? html`<div class="bar">${add}</div>` : html`<${Empty} title=${t("No rules yet")}>${t("A rule says what is not well and who is told: a group that is behind, a broker that is gone, a disk that is nearly full.")}<p></p>${add}</${Empty}>`}
    <${Silences} cluster=${cluster} silences=${data.silences} mayChange=${mayChange} onDone=${reload} />
    <div class="cards">${data.rules.map((row) => html`<div class="card" key=${row.name} data-rule=${row.name}>
      <h2><bdi>${row.name}</bdi> ${row.open ? html`<${Badge} kind="bad">${t("{0} open", count(row.open))}</${Badge}>` : html`<${Badge} kind="good">${t("nothing open")}</${Badge}>`}</h2>
      <p>${kindWords(row.rule.when)}</p>
      <p class="muted">${conditionWords(row.rule)}${/^0/.test(String(row.rule.for)) ? "" : ` · ${t("for {0}", row.rule.for)}`}</p>
      <p class="muted">${row.rule.to.length ? html`${t("Tells")} <bdi>${row.rule.to.join(", ")}</bdi>` : t("Nobody is told")}</p>
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
          <${Note}>${t("Its open alerts close; whoever was told of them is told that.")}</${Note}></${Dialog}>`
      : null}`;
}
