// All topics of a cluster: search, sort, create; empty or delete several.
import { path, post } from "../core/api.js";
import { bytes, count, rate } from "../core/format.js";
import { html, useMemo, useState } from "../core/html.js";
import { useLive } from "../core/live.js";
import { Link, go, useQuery } from "../core/router.js";
import { Counted, Table, useFiltered } from "../core/table.js";
import { errorText } from "../core/server-errors.js";
import { t } from "../core/texts.js";
import { Badge, Button, Check, Empty, Page, Problem, Search, TypeTheName, toast } from "../core/widgets.js";
import { NewTopic } from "./new-topic.js";

const PARTS = ["metadata", "ends", "starts", "sizes", "commits"];

export const health = (topic) =>
  topic.leaderless
    ? html`<${Badge} kind="bad" title=${t("Partitions without a leader cannot be read or written")}>${t("{0} leaderless", topic.leaderless)}</${Badge}>`
    : topic.under_replicated
      ? html`<${Badge} kind="warn" title=${t("Under-replicated partitions")}>${t("{0} under-replicated", topic.under_replicated)}</${Badge}>`
      : html`<${Badge} kind="good">${t("healthy")}</${Badge}>`;

const columns = (cluster) => [
  {
    key: "name", title: t("Topic"), sort: (row) => row.name,
    cell: (row) => html`<${Link} to=${path`/c/${cluster}/topics/${row.name}`} tabindex="-1"><bdi>${row.name}</bdi></${Link}>
      ${row.is_internal ? html` <${Badge}>${t("internal")}</${Badge}>` : null}`,
  },
  { key: "health", title: t("State"), sort: (row) => row.leaderless * 1e6 + row.under_replicated, cell: health },
  { key: "partitions", title: t("Partitions"), isNumber: true, sort: (row) => row.partitions, cell: (row) => count(row.partitions) },
  { key: "replication_factor", title: t("Replicas"), isNumber: true, isOptional: false, sort: (row) => row.replication_factor, cell: (row) => row.replication_factor },
  { key: "records", title: t("Records"), isNumber: true, isOptional: false, sort: (row) => row.records, cell: (row) => count(row.records) },
  { key: "size", title: t("Size"), isNumber: true, isOptional: false, sort: (row) => row.size_bytes, cell: (row) => bytes(row.size_bytes) },
  { key: "rate", title: t("Records/s"), isNumber: true, isOptional: false, sort: (row) => row.rate, cell: (row) => rate(row.rate) },
  { key: "groups", title: t("Groups"), isNumber: true, isOptional: false, sort: (row) => row.groups, cell: (row) => count(row.groups) },
];

// Applies a change to several topics, and reports refusals.
export async function forAll(address, names, done) {
  const { results } = await post(address, { names });
  const refused = results.filter((result) => result.error);
  for (const result of refused) toast(`${result.name}: ${errorText(result)}`, "bad");
  if (refused.length < results.length) toast(done(results.length - refused.length));
}

function SelectionActions({ cluster, selected, onSelect, reload }) {
  const [asked, setAsked] = useState(null);
  const names = [...selected];
  const word = names.length === 1 ? names[0] : String(names.length);
  const send = async () => {
    if (asked === "delete") await forAll(path`/api/clusters/${cluster}/topic-deletions`, names, (n) => t("{0} topics deleted", n));
    else await forAll(path`/api/clusters/${cluster}/topic-emptyings`, names, (n) => t("{0} topics emptied", n));
    setAsked(null);
    onSelect(new Set());
    reload();
  };
  return html`
    <span class="counted">${t("{0} selected", names.length)}</span>
    <${Button} onClick=${() => setAsked("empty")}>${t("Empty")}</${Button}>
    <${Button} kind="danger" onClick=${() => setAsked("delete")}>${t("Delete")}</${Button}>
    ${asked
      ? html`<${TypeTheName} name=${word} onSubmit=${send} onClose=${() => setAsked(null)}
          title=${asked === "delete" ? t("Delete {0} topics?", names.length) : t("Empty {0} topics?", names.length)}
          submit=${asked === "delete" ? t("Delete") : t("Empty")}>
          <p>${asked === "delete"
            ? t("The topics and all their records are deleted permanently.")
            : t("All records are deleted permanently. The topics, their settings and groups remain.")}</p>
          <p class="mono">${names.slice(0, 12).join(", ")}${names.length > 12 ? " …" : ""}</p>
        </${TypeTheName}>`
      : null}`;
}

export default function Topics({ cluster, may }) {
  const { data, error, reload } = useLive(path`/api/clusters/${cluster}/topics`, PARTS, cluster);
  const [text, setText] = useQuery("q");
  const [internal, setInternal] = useQuery("internal");
  const [selected, setSelected] = useState(new Set());
  const [isNew, setNew] = useState(false);
  const all = data?.topics ?? [];
  const visible = useMemo(() => (internal ? all : all.filter((topic) => !topic.is_internal)), [data, internal]);
  const rows = useFiltered(visible, text, (row) => row.name);
  const made = useMemo(() => columns(cluster), [cluster]);
  const actions = may("operator")
    ? html`${selected.size ? html`<${SelectionActions} cluster=${cluster} selected=${selected} onSelect=${setSelected} reload=${reload} />` : null}
        <${Button} kind="primary" onClick=${() => setNew(true)}>${t("Create topic")}</${Button}>`
    : null;
  return html`<${Page} title=${t("Topics")} id="topics" actions=${actions}>
    <${Problem} error=${error} />
    ${data && all.every((topic) => topic.is_internal) && !internal
      ? html`<${Empty} title=${t("No topics yet")}>
          <p>${t("Create one here, or let a program write to one:")}</p>
          <pre>ottla topics create orders --partitions 3${"\n"}ottla produce orders 'first order'</pre>
        </${Empty}>`
      : data
        ? html`<div class="bar">
              <${Search} label=${t("Find topics")} value=${text} onInput=${setText} />
              <${Counted} shown=${rows.length} all=${visible.length} />
              <${Check} label=${t("Internal topics")} checked=${Boolean(internal)} onChange=${(on) => setInternal(on ? "1" : "")} />
            </div>
            <${Table} id="topics" label=${t("Topics")} columns=${made} rows=${rows} rowKey=${(row) => row.name} order="name"
              onOpen=${(row) => go(path`/c/${cluster}/topics/${row.name}`)}
              selected=${may("operator") ? selected : null} onSelect=${setSelected} />`
        : null}
    ${isNew ? html`<${NewTopic} cluster=${cluster} onClose=${() => setNew(false)} onDone=${reload} />` : null}
  </${Page}>`;
}
