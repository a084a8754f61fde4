// Labels for alerts: kind of rule, subject, number of open alerts.
import { path } from "../core/api.js";
import { count, time } from "../core/format.js";
import { html } from "../core/html.js";
import { useLive } from "../core/live.js";
import { Link } from "../core/router.js";
import { t } from "../core/texts.js";
import { Badge, Note } from "../core/widgets.js";

export const KINDS = ["verdict", "lag", "lag-seconds", "leaderless", "under-replicated", "under-min-isr", "broker-gone", "controller-gone", "disk", "dead-letters", "pipeline"];

export function kindWords(kind) {
  switch (kind) {
    case "verdict": return t("Group cannot keep up (verdict)");
    case "lag": return t("Group lag in records");
    case "lag-seconds": return t("Group lag in seconds");
    case "leaderless": return t("Offline partitions (no leader)");
    case "under-replicated": return t("Under-replicated partitions");
    case "under-min-isr": return t("Partitions under min.insync.replicas");
    case "broker-gone": return t("Broker is down");
    case "controller-gone": return t("No active controller");
    case "disk": return t("Disk is almost full, or failed");
    case "dead-letters": return t("New dead letters");
    case "pipeline": return t("Pipeline failed, was killed or is late");
    default: return t("The rule was deleted");
  }
}

// The condition of a rule, with its limits as they were entered.
export function conditionWords(rule) {
  switch (rule.when) {
    case "verdict": return t("{0}, groups {1}", rule.status.join(", "), rule.group);
    case "lag": return t("more than {0} records, groups {1}", count(rule.above), rule.group);
    case "lag-seconds": return t("more than {0} s, groups {1}", count(rule.above), rule.group);
    case "leaderless":
    case "under-replicated":
    case "under-min-isr": return t("topics {0}", rule.topic || "*");
    case "disk": return t("less than {0} free", rule.below);
    case "dead-letters": return t("more than {0} within {1}, topics {2}", count(rule.above), rule.within, rule.topic || "*-dead-letters");
    case "pipeline": return rule.above > 0 ? t("lag above {0} records, pipelines {1}", count(rule.above), rule.pipeline) : t("pipelines {0}", rule.pipeline);
    default: return "";
  }
}

// The subject of an alert, translated; the text beside it is the one that receivers get.
function subjectWords(kind, name, subject) {
  switch (kind) {
    case "group": return t("group {0}", name);
    case "topic": return t("topic {0}", name);
    case "pipeline": return t("pipeline {0}", name);
    case "broker": return t("broker {0}", name);
    case "partitions": return t("partitions");
    case "controller": return t("controller");
    case "cluster": return t("cluster");
    default: return subject;
  }
}

const PLACES = { group: "groups", topic: "topics", pipeline: "pipelines", broker: "brokers" };

// "group orders" links to that group; a disk ("broker 1 /data") to its broker.
export function Subject({ cluster, subject }) {
  const [kind, ...rest] = subject.split(" ");
  const words = subjectWords(kind, rest.join(" "), subject);
  const name = kind === "broker" ? rest[0] : rest.join(" ");
  const place = PLACES[kind];
  if (!place || !name || !cluster) return html`<bdi>${words}</bdi>`;
  return html`<${Link} to=${path`/c/${cluster}/${place}/${name}`}><bdi>${words}</bdi></${Link}>`;
}

// In the top bar of every page.
export function AlertBadge({ cluster, isNamed = false }) {
  const { data } = useLive(`${path`/api/clusters/${cluster}/alerts`}?limit=0`, ["alerts"], cluster);
  if (!data?.count) return null;
  const words = data.count === 1 ? t("1 alert") : t("{0} alerts", count(data.count));
  return html`<${Link} class="badge bad alert-badge" to=${path`/c/${cluster}/alerts`}>${isNamed ? `${cluster}: ` : ""}${words}</${Link}>`;
}

// On the overview: the open alerts.
export function OpenAlerts({ cluster }) {
  const { data } = useLive(`${path`/api/clusters/${cluster}/alerts`}?limit=5`, ["alerts"], cluster);
  if (!data?.count) return null;
  return html`<${Note} kind="bad"><b>${t("Open alerts: {0}", count(data.count))}</b> <${Link} to=${path`/c/${cluster}/alerts`}>${t("Show")}</${Link}>
    <ul class="alerts-named">${data.alerts.map((each) => html`<li key=${`${each.rule} ${each.subject}`}><bdi>${each.rule}</bdi>: <${Subject} subject=${each.subject} />, ${each.text}</li>`)}</ul></${Note}>`;
}

export const stateOf = (alert) => {
  if (alert.closed_ms) return html`<${Badge} kind="good" title=${time(alert.closed_ms)}>${t("closed")}</${Badge}>`;
  return html`<${Badge} kind="bad">${t("open")}</${Badge}>`;
};
