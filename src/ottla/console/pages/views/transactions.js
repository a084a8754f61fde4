// Transactional ids and hanging transactions, and aborting them.
import { path, post } from "../core/api.js";
import { age, count, time } from "../core/format.js";
import { html, useMemo, useState } from "../core/html.js";
import { serverNow, useLive } from "../core/live.js";
import { Link, useQuery } from "../core/router.js";
import { Counted, Table, useFiltered } from "../core/table.js";
import { t } from "../core/texts.js";
import { Badge, Button, Dialog, Empty, Field, Note, Page, Problem, Search, toast } from "../core/widgets.js";

const OUTCOMES = { Ongoing: "warn", CompleteCommit: "good", CompleteAbort: "neutral", Empty: "neutral" };

function HangingTransactions({ cluster, may }) {
  const [isOpen, setOpen] = useState(false);
  const [topic, setTopic] = useState("");
  const [minutes, setMinutes] = useState("15");
  const [found, setFound] = useState(null);
  const [aborted, setAborted] = useState(null);
  const search = async () => {
    const body = { topic: topic.trim() || null, minutes: Number(minutes) };
    setFound((await post(path`/api/clusters/${cluster}/hanging-transactions`, body)).hanging);
    setOpen(false);
  };
  const abort = async () => {
    const row = aborted;
    await post(path`/api/clusters/${cluster}/topics/${row.topic}/partitions/${row.partition}/transaction-aborts`, { start_offset: row.start_offset });
    toast(t("Aborted in {0}", `${row.topic}-${row.partition}`));
    setFound((rows) => rows.filter((each) => each !== row));
    setAborted(null);
  };
  const columns = [
    { key: "topic", title: t("Topic"), sort: (row) => row.topic, cell: (row) => html`<${Link} to=${path`/c/${cluster}/topics/${row.topic}`}><bdi>${row.topic}</bdi></${Link}>` },
    { key: "partition", title: t("Partition"), isNumber: true, sort: (row) => row.partition, cell: (row) => row.partition },
    { key: "start", title: t("Start offset"), isNumber: true, sort: (row) => row.start_offset, cell: (row) => count(row.start_offset) },
    { key: "producer", title: t("Producer"), isNumber: true, isOptional: false, sort: (row) => row.producer_id, cell: (row) => row.producer_id },
    { key: "last", title: t("Last record"), isOptional: false, sort: (row) => row.last_ms, cell: (row) => time(row.last_ms) },
    { key: "abort", title: t("Action"), cell: (row) => (may("operator") ? html`<${Button} kind="danger" onClick=${() => setAborted(row)}>${t("Abort")}</${Button}>` : null) },
  ];
  return html`<div><${Button} onClick=${() => setOpen(true)}>${t("Find hanging transactions")}</${Button}></div>
    ${found && !found.length ? html`<${Note}>${t("No hanging transactions.")}</${Note}>` : null}
    ${found?.length
      ? html`<${Table} id="hanging" label=${t("Hanging transactions")} columns=${columns} rows=${found} rowKey=${(row) => `${row.topic}-${row.partition}-${row.start_offset}`} order="topic" isShort />`
      : null}
    ${isOpen
      ? html`<${Dialog} title=${t("Find hanging transactions")} submit=${t("Search")} onSubmit=${search} onClose=${() => setOpen(false)}>
          <p>${t("They are open in a partition, but no coordinator will end them: read_committed consumers stop there.")}</p>
          <${Field} label=${t("Topic")} hint=${t("Empty: all topics")}><input value=${topic} onInput=${(event) => setTopic(event.target.value)} spellcheck="false" /></${Field}>
          <${Field} label=${t("No record for (minutes)")}><input type="number" min="0" value=${minutes} onInput=${(event) => setMinutes(event.target.value)} /></${Field}>
        </${Dialog}>`
      : null}
    ${aborted
      ? html`<${Dialog} title=${t("Abort the transaction in {0}?", `${aborted.topic}-${aborted.partition}`)} submit=${t("Abort")} kind="danger" onSubmit=${abort} onClose=${() => setAborted(null)}>
          <p>${t("Consumers with read_committed never receive its records.")}</p></${Dialog}>`
      : null}`;
}

export default function Transactions({ cluster, may }) {
  const { data, error, reload } = useLive(path`/api/clusters/${cluster}/transactions`, ["ends"], cluster);
  const [text, setText] = useQuery("q");
  const [aborted, setAborted] = useState(null);
  const all = data?.transactions ?? [];
  const rows = useFiltered(all, text, (row) => row.transactional_id);
  const isOperator = may("operator");
  const columns = useMemo(() => [
    { key: "id", title: t("Transactional id"), sort: (row) => row.transactional_id, cell: (row) => html`<bdi>${row.transactional_id}</bdi>` },
    { key: "state", title: t("State"), sort: (row) => row.state, cell: (row) => html`<${Badge} kind=${OUTCOMES[row.state] ?? "warn"}>${row.state}</${Badge}>` },
    { key: "since", title: t("Open since"), isNumber: true, sort: (row) => (row.start_ms == null ? null : -row.start_ms), cell: (row) => (row.start_ms == null ? "–" : age(serverNow() - row.start_ms)) },
    { key: "partitions", title: t("Partitions"), isOptional: false, sort: (row) => row.partitions.length, cell: (row) => html`<bdi>${row.partitions.join(", ") || "–"}</bdi>` },
    { key: "producer", title: t("Producer"), isNumber: true, isOptional: false, sort: (row) => row.producer_id, cell: (row) => row.producer_id },
    { key: "coordinator", title: t("Coordinator"), isOptional: false, sort: (row) => row.coordinator, cell: (row) => t("broker {0}", row.coordinator) },
    { key: "abort", title: t("Action"), cell: (row) => (isOperator && row.is_open ? html`<${Button} kind="danger" onClick=${() => setAborted(row)}>${t("Abort")}</${Button}>` : null) },
  ], [isOperator]);
  const abort = async () => {
    await post(path`/api/clusters/${cluster}/transactions/${aborted.transactional_id}/aborts`);
    toast(t("Aborted: {0}", aborted.transactional_id));
    setAborted(null);
    reload();
  };
  return html`<${Page} title=${t("Transactions")} id="transactions">
    <${Problem} error=${error} />
    <${HangingTransactions} cluster=${cluster} may=${may} />
    ${data && !all.length
      ? html`<${Empty} title=${t("No transactions yet")}>${t("A producer with a transactional.id appears here.")}</${Empty}>`
      : data
        ? html`<div class="bar"><${Search} label=${t("Find transactional ids")} value=${text} onInput=${setText} /><${Counted} shown=${rows.length} all=${all.length} /></div>
            <${Table} id="transactions" label=${t("Transactions")} columns=${columns} rows=${rows} rowKey=${(row) => row.transactional_id} order="-since" />`
        : null}
    ${aborted
      ? html`<${Dialog} title=${t("Abort the transaction of {0}?", aborted.transactional_id)} submit=${t("Abort")} kind="danger" onSubmit=${abort} onClose=${() => setAborted(null)}>
          <p>${t("The producer of this id is fenced: its next request fails, and it has to restart.")}</p></${Dialog}>`
      : null}
  </${Page}>`;
}
