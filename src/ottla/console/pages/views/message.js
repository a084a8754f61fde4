// One message: position, headers, key and value as tree, text or bytes; and producing it again.
import { get, path, post } from "../core/api.js";
import { bytes, count, time } from "../core/format.js";
import { html, useEffect, useState } from "../core/html.js";
import { useQuery } from "../core/router.js";
import { t } from "../core/texts.js";
import { Badge, Button, Dialog, Field, Note, Problem, toast } from "../core/widgets.js";
import { AsHex, AsText, Tree, bytesOf, visible } from "./message-text.js";

const STATES = { aborted: "bad", open: "warn", committed: "good" };

export const stateOf = (message) =>
  message.state === "committed" ? null : html`<${Badge} kind=${STATES[message.state] ?? "info"}>${message.state}</${Badge}>`;

export function Content({ title, part }) {
  const [form, setForm] = useQuery("show", "");
  if (part.format === "null") return html`<section><h2>${title} <${Badge}>null</${Badge}></h2></section>`;
  const forms = [
    ...(part.json !== undefined ? [{ key: "tree", name: t("Tree") }] : []),
    ...(part.text !== undefined ? [{ key: "text", name: t("Text") }] : []),
    { key: "hex", name: t("Bytes") },
  ];
  const current = forms.find((each) => each.key === form)?.key ?? forms[0].key;
  return html`<section>
    <h2>${title} <span class="muted">${part.format}${part.schema_id !== undefined ? ` · ${t("schema {0}", part.schema_id)}` : ""} · ${bytes(part.bytes)}</span>
      <span class="forms" role="group" aria-label=${t("Show as")}>${forms.map(
        (each) => html`<button type="button" key=${each.key} class=${`button small ${each.key === current ? "" : "quiet"}`}
          aria-pressed=${each.key === current} onClick=${() => setForm(each.key)}>${each.name}</button>`,
      )}</span></h2>
    ${part.problem ? html`<${Note} kind="warn">${part.problem}</${Note}>` : null}
    ${part.is_cut ? html`<${Note} kind="warn">${t("Only the first part is shown.")}</${Note}>` : null}
    ${current === "tree" ? html`<div class="content"><${Tree} value=${part.json} /></div>` : null}
    ${current === "text" ? html`<${AsText} text=${part.text} />` : null}
    ${current === "hex" ? html`<${AsHex} bytes=${bytesOf(part)} />` : null}
  </section>`;
}

function ProduceAgainDialog({ cluster, topic, message, onClose }) {
  const [target, setTarget] = useState(topic);
  const [targetCluster, setTargetCluster] = useState(cluster);
  const send = async () => {
    const body = { copy_of: { cluster, topic, partition: message.partition, offset: message.offset } };
    const written = await post(path`/api/clusters/${targetCluster}/topics/${target}/messages`, body);
    toast(t("Written to partition {0} at offset {1}", written.partition, written.offset));
    onClose();
  };
  return html`<${Dialog} title=${t("Produce again")} submit=${t("Produce")} isReady=${target && targetCluster} onSubmit=${send} onClose=${onClose}>
    <p>${t("Key, value and headers are copied byte by byte; the key selects the partition.")}</p>
    <${Field} label=${t("Topic")}><input name="topic" value=${target} onInput=${(event) => setTarget(event.target.value)} spellcheck="false" autofocus /></${Field}>
    <${Field} label=${t("Cluster")}><input name="cluster" value=${targetCluster} onInput=${(event) => setTargetCluster(event.target.value)} spellcheck="false" /></${Field}>
  </${Dialog}>`;
}

export function MessagePanel({ cluster, topic, position, may, onClose }) {
  const [partition, offset] = position.split(":");
  const [found, setFound] = useState({});
  const [isCopying, setCopying] = useState(false);
  useEffect(() => {
    let isOver = false;
    setFound({});
    get(path`/api/clusters/${cluster}/topics/${topic}/messages/${partition}/${offset}`).then(
      (message) => isOver || setFound({ message }),
      (error) => isOver || setFound({ error }),
    );
    return () => { isOver = true; };
  }, [cluster, topic, position]);
  const { message, error } = found;
  return html`<aside class="card message" aria-label=${t("Message")} id="message">
    <h2><span>${t("Partition {0}, offset {1}", partition, offset)} ${message ? stateOf(message) : null}
        ${message?.is_masked ? html`<${Badge} kind="info">${t("masked")}</${Badge}>` : null}</span>
      <span class="bar">
        ${message && may("operator") && !message.is_masked ? html`<${Button} kind="small" onClick=${() => setCopying(true)}>${t("Produce again")}</${Button}>` : null}
        <${Button} kind="small" onClick=${onClose}>${t("Close")}</${Button}>
      </span></h2>
    <${Problem} error=${error} />
    ${message
      ? html`<p class="muted">${time(message.timestamp)} · ${message.timestamp_type} · ${message.codec}</p>
          ${message.headers.length
            ? html`<section><h2>${t("Headers")} <span class="muted">${count(message.headers.length)}</span></h2>
                <dl class="headers">${message.headers.map((header) => html`<dt><bdi>${visible(header.name)}</bdi></dt>
                  <dd>${header.value === null ? html`<i class="muted">null</i>` : html`<bdi>${visible(header.value)}</bdi>`}</dd>`)}</dl></section>`
            : null}
          <${Content} title=${t("Key")} part=${message.key} />
          <${Content} title=${t("Value")} part=${message.value} />`
      : null}
    ${isCopying ? html`<${ProduceAgainDialog} cluster=${cluster} topic=${topic} message=${message} onClose=${() => setCopying(false)} />` : null}
  </aside>`;
}
