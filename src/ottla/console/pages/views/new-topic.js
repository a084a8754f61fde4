// The dialog that creates a topic, or a copy of one.
import { path, post } from "../core/api.js";
import { html, useState } from "../core/html.js";
import { t } from "../core/texts.js";
import { Dialog, Field, toast } from "../core/widgets.js";

const NAME = /^[A-Za-z0-9._-]{1,249}$/;

// Parses "a=1\nb=2" into an object; null if a line is invalid.
export function parseSettings(text) {
  const settings = {};
  for (const line of text.split("\n").map((each) => each.trim()).filter((each) => each && !each.startsWith("#"))) {
    const equals = line.indexOf("=");
    if (equals < 1) return null;
    settings[line.slice(0, equals).trim()] = line.slice(equals + 1).trim();
  }
  return settings;
}

export function NewTopic({ cluster, onClose, onDone, like }) {
  const [name, setName] = useState(like ? `${like.name}-copy` : "");
  const [partitions, setPartitions] = useState(like ? String(like.partitions) : "");
  const [replicas, setReplicas] = useState(like ? String(like.replication_factor) : "");
  const [text, setText] = useState(like?.settings ?? "");
  const settings = parseSettings(text);
  const isName = NAME.test(name) && name !== "." && name !== "..";
  const send = async () => {
    await post(path`/api/clusters/${cluster}/topics`, {
      name,
      partitions: partitions ? Number(partitions) : null,
      replication_factor: replicas ? Number(replicas) : null,
      settings,
    });
    toast(t("Topic {0} created", name));
    onDone?.(name);
    onClose();
  };
  return html`<${Dialog} title=${like ? t("Copy topic {0}", like.name) : t("Create topic")} submit=${t("Create")}
      isReady=${isName && settings !== null} onSubmit=${send} onClose=${onClose}>
    <${Field} label=${t("Name")} hint=${t("Letters, digits, '.', '_' and '-'")}
        error=${name && !isName ? t("This is not a valid topic name") : null}>
      <input name="name" value=${name} onInput=${(event) => setName(event.target.value)} autocomplete="off" spellcheck="false" autofocus />
    </${Field}>
    <div class="fields">
      <${Field} label=${t("Partitions")} hint=${t("Empty: the default of the cluster")}>
        <input name="partitions" type="number" min="1" value=${partitions} onInput=${(event) => setPartitions(event.target.value)} />
      </${Field}>
      <${Field} label=${t("Replication factor")} hint=${t("Empty: the default of the cluster")}>
        <input name="replicas" type="number" min="1" value=${replicas} onInput=${(event) => setReplicas(event.target.value)} />
      </${Field}>
    </div>
    <${Field} label=${t("Settings")} hint=${t("One per line, such as retention.ms=3600000")}
        error=${settings === null ? t("A line does not have the form key=value") : null}>
      <textarea name="settings" value=${text} onInput=${(event) => setText(event.target.value)} spellcheck="false"></textarea>
    </${Field}>
  </${Dialog}>`;
}
