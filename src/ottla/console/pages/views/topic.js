// One topic: partitions, settings, groups, actions. Further views are rows of VIEWS.
import { path, put, remove, get } from "../core/api.js";
import { bytes, count, rate } from "../core/format.js";
import { html, useMemo, useState } from "../core/html.js";
import { useLive } from "../core/live.js";
import { Link, go } from "../core/router.js";
import { Table } from "../core/table.js";
import { t } from "../core/texts.js";
import { Badge, Button, Dialog, Empty, Field, Figure, Page, Problem, Tabs, TypeTheName, toast } from "../core/widgets.js";
import { stateBadge } from "./group-badges.js";
import { Messages } from "./messages.js";
import { NewTopic } from "./new-topic.js";
import { ReassignmentPanel } from "./reassignments.js";
import { Settings } from "./settings.js";
import { forAll, health } from "./topics.js";

const PARTS = ["metadata", "ends", "starts", "sizes", "commits", "groups"];

const partitionColumns = () => [
  { key: "partition", title: t("Partition"), isNumber: true, width: "90px", sort: (row) => row.partition, cell: (row) => row.partition },
  { key: "leader", title: t("Leader"), isNumber: true, sort: (row) => row.leader, cell: (row) => row.leader < 0 ? html`<${Badge} kind="bad">${t("none")}</${Badge}>` : row.leader },
  { key: "replicas", title: t("Replicas"), cell: (row) => row.replicas.join(", ") },
  {
    key: "isr", title: t("In sync"), sort: (row) => row.isr.length - row.replicas.length,
    cell: (row) => html`${row.isr.join(", ")} ${row.isr.length < row.replicas.length ? html`<${Badge} kind="warn">${t("{0} missing", row.replicas.length - row.isr.length)}</${Badge}>` : null}`,
  },
  { key: "start", title: t("Start"), isNumber: true, isOptional: false, sort: (row) => row.start, cell: (row) => count(row.start) },
  { key: "end", title: t("End"), isNumber: true, isOptional: false, sort: (row) => row.end, cell: (row) => count(row.end) },
  { key: "size", title: t("Size"), isNumber: true, isOptional: false, sort: (row) => row.size_bytes, cell: (row) => bytes(row.size_bytes) },
  { key: "rate", title: t("Records/s"), isNumber: true, isOptional: false, sort: (row) => row.rate, cell: (row) => rate(row.rate) },
];

function Partitions({ answer }) {
  const columns = useMemo(partitionColumns, []);
  return html`<${Table} id="partitions" label=${t("Partitions")} columns=${columns} rows=${answer.partitions}
    rowKey=${(row) => String(row.partition)} order="partition" />`;
}

function Groups({ answer, cluster }) {
  if (!answer.groups.length) return html`<${Empty} title=${t("No group reads this topic")}>${t("Groups that commit offsets for this topic appear here.")}</${Empty}>`;
  const columns = [
    { key: "group", title: t("Group"), sort: (row) => row.group, cell: (row) => html`<${Link} to=${path`/c/${cluster}/groups/${row.group}`} tabindex="-1"><bdi>${row.group}</bdi></${Link}>` },
    { key: "state", title: t("State"), sort: (row) => row.state, cell: (row) => stateBadge(row.state) },
    { key: "members", title: t("Members here"), isNumber: true, sort: (row) => row.members, cell: (row) => count(row.members) },
    { key: "lag", title: t("Lag here"), isNumber: true, sort: (row) => row.lag, cell: (row) => count(row.lag) },
  ];
  return html`<${Table} id="topic-groups" label=${t("Groups")} columns=${columns} rows=${answer.groups} rowKey=${(row) => row.group}
    order="-lag" onOpen=${(row) => go(path`/c/${cluster}/groups/${row.group}`)} />`;
}

// Figures with the names of CMAK.
function Brokers({ cluster, topic }) {
  const { data, error } = useLive(path`/api/clusters/${cluster}/topics/${topic}/brokers`, PARTS, cluster);
  const yes = (is) => (is ? html`<${Badge} kind="warn">${t("yes")}</${Badge}>` : t("no"));
  const columns = useMemo(() => [
    { key: "broker", title: t("Broker"), isNumber: true, width: "90px", sort: (row) => row.broker, cell: (row) => html`<${Link} to=${path`/c/${cluster}/brokers/${row.broker}`}>${row.broker}</${Link}>` },
    { key: "count", title: t("# of Partitions"), isNumber: true, sort: (row) => row.partitions.length, cell: (row) => count(row.partitions.length) },
    { key: "leaders", title: t("# as Leader"), isNumber: true, sort: (row) => row.leaders, cell: (row) => count(row.leaders) },
    { key: "partitions", title: t("Partitions"), cell: (row) => html`<span title=${row.partitions.join(", ")}>${row.partitions.join(", ")}</span>` },
    { key: "skewed", title: t("Skewed?"), sort: (row) => Number(row.is_skewed), cell: (row) => yes(row.is_skewed) },
    { key: "leader-skewed", title: t("Leader Skewed?"), sort: (row) => Number(row.is_leader_skewed), cell: (row) => yes(row.is_leader_skewed) },
  ], [cluster]);
  const kinds = { ok: "", yellow: "warn", red: "bad" };
  return html`<${Problem} error=${error} />
    ${data
      ? html`<div class="figures five">${data.figures.map((figure) => html`<${Figure} key=${figure.name} label=${figure.name} value=${count(figure.value)} kind=${kinds[figure.level]} />`)}</div>
          <${Table} id="topic-brokers" label=${t("Brokers")} columns=${columns} rows=${data.brokers} rowKey=${(row) => String(row.broker)} order="broker" />`
      : null}`;
}

function TopicSettings({ cluster, topic, may }) {
  return html`<${Settings} address=${path`/api/clusters/${cluster}/topics/${topic}/settings`} cluster=${cluster} isEditable=${may("operator")} />`;
}

function TopicReassignments({ cluster, topic, answer, may }) {
  return html`<${ReassignmentPanel} cluster=${cluster} topic=${topic} partitions=${answer.partitions} may=${may} />`;
}

// The views of a topic: last part of the address, title, component.
export const VIEWS = [
  { key: "partitions", title: "Partitions", View: Partitions },
  { key: "messages", title: "Messages", View: Messages },
  { key: "settings", title: "Settings", View: TopicSettings },
  { key: "groups", title: "Groups", View: Groups },
  { key: "brokers", title: "Brokers", View: Brokers },
  { key: "reassignments", title: "Assignments", View: TopicReassignments },
];

function More({ cluster, topic, onClose }) {
  const [number, setNumber] = useState(String(topic.partitions + 1));
  const send = async () => {
    await put(path`/api/clusters/${cluster}/topics/${topic.name}/partitions`, { partitions: Number(number) });
    toast(t("{0} has {1} partitions now", topic.name, number));
    onClose();
  };
  return html`<${Dialog} title=${t("Add partitions")} submit=${t("Add")} isReady=${Number(number) > topic.partitions} onSubmit=${send} onClose=${onClose}>
    <p>${t("Keys map to other partitions from then on, and partitions cannot be removed again.")}</p>
    <${Field} label=${t("Partitions in total")} hint=${t("{0} now", topic.partitions)}>
      <input name="partitions" type="number" min=${topic.partitions + 1} value=${number} onInput=${(event) => setNumber(event.target.value)} autofocus />
    </${Field}>
  </${Dialog}>`;
}

function Actions({ cluster, topic }) {
  const [asked, setAsked] = useState(null);
  const close = () => setAsked(null);
  const copy = async () => {
    const { settings } = await get(path`/api/clusters/${cluster}/topics/${topic.name}/settings`);
    const own = settings.filter((each) => each.source === "DYNAMIC_TOPIC_CONFIG").map((each) => `${each.name}=${each.value}`);
    setAsked({ kind: "copy", like: { ...topic, settings: own.join("\n") } });
  };
  const empty = async () => {
    await forAll(path`/api/clusters/${cluster}/topic-emptyings`, [topic.name], () => t("{0} is now empty", topic.name));
    close();
  };
  const drop = async () => {
    await remove(path`/api/clusters/${cluster}/topics/${topic.name}`);
    toast(t("Topic {0} deleted", topic.name));
    go(path`/c/${cluster}/topics`);
  };
  return html`
    <${Button} onClick=${() => setAsked({ kind: "more" })}>${t("Add partitions")}</${Button}>
    <${Button} onClick=${copy}>${t("Copy")}</${Button}>
    <${Button} onClick=${() => setAsked({ kind: "empty" })}>${t("Empty")}</${Button}>
    <${Button} kind="danger" onClick=${() => setAsked({ kind: "delete" })}>${t("Delete")}</${Button}>
    ${asked?.kind === "more" ? html`<${More} cluster=${cluster} topic=${topic} onClose=${close} />` : null}
    ${asked?.kind === "copy"
      ? html`<${NewTopic} cluster=${cluster} like=${asked.like} onClose=${close} onDone=${(name) => go(path`/c/${cluster}/topics/${name}`)} />`
      : null}
    ${asked?.kind === "empty"
      ? html`<${TypeTheName} title=${t("Empty {0}?", topic.name)} submit=${t("Empty")} name=${topic.name} onSubmit=${empty} onClose=${close}>
          <p>${t("All records are deleted permanently. The topics, their settings and groups remain.")}</p></${TypeTheName}>`
      : null}
    ${asked?.kind === "delete"
      ? html`<${TypeTheName} title=${t("Delete {0}?", topic.name)} submit=${t("Delete")} name=${topic.name} onSubmit=${drop} onClose=${close}>
          <p>${t("The topic and its {0} records are deleted permanently.", count(topic.records))}</p></${TypeTheName}>`
      : null}`;
}

export default function Topic({ cluster, topic: name, view = "partitions", may, session }) {
  const { data, error } = useLive(path`/api/clusters/${cluster}/topics/${name}`, PARTS, cluster);
  const topic = data?.topic;
  const { View } = VIEWS.find((each) => each.key === view) ?? VIEWS[0];
  const tabs = VIEWS.map(({ key, title }) => ({
    key,
    text: t(title),
    to: path`/c/${cluster}/topics/${name}` + (key === VIEWS[0].key ? "" : `/${key}`),
  }));
  return html`<${Page} title=${name} id="topic"
      crumbs=${html`<${Link} to=${path`/c/${cluster}/topics`}>${t("Topics")}</${Link}>`}
      actions=${topic && may("operator") ? html`<${Actions} cluster=${cluster} topic=${topic} />` : null}>
    ${error?.status === 404 && !data
      ? html`<${Empty} title=${t("There is no topic {0}", name)}><${Link} to=${path`/c/${cluster}/topics`}>${t("All topics")}</${Link}></${Empty}>`
      : html`<${Problem} error=${error} />`}
    ${topic
      ? html`<div class="figures">
            <${Figure} label=${t("State")} value=${health(topic)} />
            <${Figure} label=${t("Partitions")} value=${count(topic.partitions)} />
            <${Figure} label=${t("Replicas")} value=${count(topic.replication_factor)} />
            <${Figure} label=${t("Records")} value=${count(topic.records)} />
            <${Figure} label=${t("Size")} value=${bytes(topic.size_bytes)} title=${t("Size of one copy: the leaders' replicas")} />
            <${Figure} label=${t("Records/s")} value=${rate(topic.rate)} />
          </div>
          <${Tabs} items=${tabs} current=${view} />
          <${View} answer=${data} cluster=${cluster} topic=${name} may=${may} session=${session} />`
      : null}
  </${Page}>`;
}
