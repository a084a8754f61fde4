// Alerts of a cluster: open alerts, history, rules, receivers.
import { path } from "../core/api.js";
import { age, count, time } from "../core/format.js";
import { html, useMemo, useState } from "../core/html.js";
import { serverNow, useFreshness, useLive } from "../core/live.js";
import { Link } from "../core/router.js";
import { Table } from "../core/table.js";
import { t } from "../core/texts.js";
import { Badge, Button, Empty, Note, Page, Problem, Tabs } from "../core/widgets.js";
import { Rules } from "./alert-rules.js";
import { Subject, kindWords, stateOf } from "./alert-labels.js";
import { Receivers } from "./receivers.js";
import { SilenceDialog } from "./alert-rules.js";

function Undelivered({ rows }) {
  if (!rows.length) return null;
  return html`<section class="card"><h2>${t("Undelivered notifications")}</h2>
    <ul class="list">${rows.slice(0, 10).map((row, index) => html`<li key=${index}><span><bdi>${row.channel}</bdi>: ${row.problem}</span>
      <span class="muted">${time(row.made_ms)} · ${row.done_ms ? t("given up after {0} attempts", count(row.attempts)) : t("{0} attempts, will be retried", count(row.attempts))}</span></li>`)}</ul></section>`;
}

function Open({ cluster, may }) {
  const { data, error, reload } = useLive(path`/api/clusters/${cluster}/alerts`, ["alerts"], cluster);
  const [silenced, setSilenced] = useState(null);
  useFreshness(cluster); // re-renders the durations every second
  if (!data) return html`<${Problem} error=${error} />`;
  return html`<${Problem} error=${error} />
    ${data.problem ? html`<${Note} kind="warn">${t("The rules cannot be evaluated at the moment: {0}", data.problem)}</${Note}>` : null}
    ${!data.count && !data.rules
      ? html`<${Empty} title=${t("No rules yet")}>${t("A rule defines a condition and its receivers: a lagging group, a broker that is down, a disk that is almost full.")} <${Link} to=${path`/c/${cluster}/alerts/rules`}>${t("Go to rules")}</${Link}></${Empty}>`
      : !data.count
        ? html`<${Note} kind="good">${t("No open alerts. {0} rules watch this cluster.", count(data.rules))}</${Note}>`
        : html`<ul class="list findings card alerts-open">${data.alerts.map((each) => html`<li key=${`${each.rule} ${each.subject}`} data-alert=${`${each.rule} ${each.subject}`}>
            <span>${stateOf(each)} ${each.is_silenced ? html`<${Badge} kind="warn">${t("silenced")}</${Badge}>` : null}</span>
            <div><b><bdi>${each.rule}</bdi>: <${Subject} cluster=${cluster} subject=${each.subject} /></b><br />
              <span>${each.text}</span><br />
              <span class="muted">${kindWords(each.kind)} · ${t("for {0}", age(serverNow() - each.since_ms))} · ${time(each.since_ms)}</span></div>
            ${may("operator") && each.kind ? html`<${Button} kind="small" onClick=${() => setSilenced(each)}>${t("Silence")}</${Button}>` : null}</li>`)}</ul>
          ${data.count > data.alerts.length ? html`<p class="muted">${t("{0} more", count(data.count - data.alerts.length))}</p>` : null}`}
    <${Undelivered} rows=${data.unsent} />
    ${silenced ? html`<${SilenceDialog} cluster=${cluster} rule=${silenced.rule} subject=${silenced.subject} onClose=${() => setSilenced(null)} onDone=${reload} />` : null}`;
}

function History({ cluster }) {
  const { data, error } = useLive(path`/api/clusters/${cluster}/alert-history`, ["alerts"], cluster);
  const columns = useMemo(() => [
    { key: "opened", title: t("Opened"), isNumber: true, width: "170px", sort: (row) => row.opened_ms, cell: (row) => time(row.opened_ms) },
    { key: "state", title: t("State"), sort: (row) => row.closed_ms ?? Infinity, cell: stateOf },
    { key: "lasted", title: t("Duration"), isNumber: true, sort: (row) => (row.closed_ms ?? Infinity) - row.since_ms, cell: (row) => (row.closed_ms ? age(row.closed_ms - row.since_ms) : "–") },
    { key: "rule", title: t("Rule"), sort: (row) => row.rule, cell: (row) => html`<bdi>${row.rule}</bdi>` },
    { key: "subject", title: t("Target"), sort: (row) => row.subject, cell: (row) => html`<${Subject} cluster=${cluster} subject=${row.subject} />` },
    { key: "text", title: t("Reason"), sort: (row) => row.text, cell: (row) => html`<span title=${row.text}>${row.text}</span>` },
    { key: "told", title: t("Notified"), isOptional: true, sort: (row) => Number(row.is_told), cell: (row) => (row.is_told ? t("yes") : t("no")) },
  ], [cluster]);
  const rows = useMemo(() => (data?.alerts ?? []).map((row, index) => ({ ...row, index })), [data]);
  if (!data) return html`<${Problem} error=${error} />`;
  if (!rows.length) return html`<${Empty} title=${t("No alerts yet")}>${t("Alerts that the rules raise appear here.")}</${Empty}>`;
  return html`<${Problem} error=${error} /><${Table} id="alert-history" label=${t("History")} columns=${columns} rows=${rows} rowKey=${(row) => `${row.opened_ms} ${row.rule} ${row.subject}`} order="-opened" />`;
}

const VIEWS = [
  { key: "open", title: "Open", View: Open },
  { key: "history", title: "History", View: History },
  { key: "rules", title: "Rules", View: Rules },
  { key: "receivers", title: "Receivers", View: Receivers, isForAdmins: true },
];

export default function Alerts({ cluster, view = "open", may, session }) {
  const views = VIEWS.filter((each) => !each.isForAdmins || session.is_admin);
  const { View, key } = views.find((each) => each.key === view) ?? views[0];
  const tabs = views.map(({ key: word, title }) => ({ key: word, text: t(title), to: path`/c/${cluster}/alerts` + (word === "open" ? "" : `/${word}`) }));
  return html`<${Page} title=${t("Alerts")} id="alerts">
    <${Tabs} items=${tabs} current=${key} />
    <${View} cluster=${cluster} may=${may} session=${session} />
  </${Page}>`;
}
