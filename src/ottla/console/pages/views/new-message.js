// Produces a message to a topic; and the rules that hide fields.
import { get, path, post, put } from "../core/api.js";
import { html, useEffect, useState } from "../core/html.js";
import { t } from "../core/texts.js";
import { Check, Dialog, Field, toast } from "../core/widgets.js";

function Part({ name, label, value, onValue }) {
  return html`<${Field} label=${label}>
    ${name === "value"
      ? html`<textarea name="value" rows="8" disabled=${value === null} value=${value ?? ""} onInput=${(event) => onValue(event.target.value)} spellcheck="false" autofocus></textarea>`
      : html`<input name="key" disabled=${value === null} value=${value ?? ""} onInput=${(event) => onValue(event.target.value)} spellcheck="false" />`}
  </${Field}>
  <${Check} label=${name === "value" ? t("The value is null") : t("No key (null)")} checked=${value === null}
    onChange=${(isNull) => onValue(isNull ? null : "")} name=${`${name}-null`} />`;
}

// One "name: value" per line; a name alone has the value null.
export function headersOf(text) {
  return text.split("\n").filter((line) => line.trim()).map((line) => {
    const colon = line.indexOf(":");
    return colon < 0 ? [line.trim(), null] : [line.slice(0, colon).trim(), line.slice(colon + 1).trim()];
  });
}

export function NewMessage({ cluster, topic, onClose, onDone }) {
  const [key, setKey] = useState(null);
  const [value, setValue] = useState("");
  const [headers, setHeaders] = useState("");
  const [partition, setPartition] = useState("");
  const [encoding, setEncoding] = useState("text");
  const send = async () => {
    const body = { key, value, headers: headersOf(headers), encoding, partition: partition === "" ? null : Number(partition) };
    const written = await post(path`/api/clusters/${cluster}/topics/${topic}/messages`, body);
    toast(t("Written to partition {0} at offset {1}", written.partition, written.offset));
    onClose();
    onDone();
  };
  return html`<${Dialog} title=${t("Produce a message")} submit=${t("Produce")} onSubmit=${send} onClose=${onClose} isWide>
    <${Part} name="key" label=${t("Key")} value=${key} onValue=${setKey} />
    <${Part} name="value" label=${t("Value")} value=${value} onValue=${setValue} />
    <${Field} label=${t("Headers")} hint=${t("One name: value per line; a name alone has the value null")}>
      <textarea name="headers" rows="3" value=${headers} onInput=${(event) => setHeaders(event.target.value)} spellcheck="false"></textarea>
    </${Field}>
    <div class="fields">
      <${Field} label=${t("Partition")} hint=${t("Empty: by key")}>
        <input name="partition" type="number" min="0" value=${partition} onInput=${(event) => setPartition(event.target.value)} />
      </${Field}>
      <${Field} label=${t("Encoding")}>
        <select name="encoding" value=${encoding} onChange=${(event) => setEncoding(event.target.value)}>
          <option value="text">${t("Text")}</option><option value="base64">base64</option>
        </select>
      </${Field}>
    </div>
  </${Dialog}>`;
}

export function Masks({ cluster, onClose, onDone }) {
  const [text, setText] = useState(null);
  const address = path`/api/clusters/${cluster}/masks`;
  useEffect(() => { get(address).then(({ rules }) => setText(rules.join("\n"))); }, []);
  const save = async () => {
    await put(address, { rules: text.split("\n").map((line) => line.trim()).filter(Boolean) });
    toast(t("Saved"));
    onClose();
    onDone();
  };
  return html`<${Dialog} title=${t("Hidden fields")} submit=${t("Save")} isReady=${text !== null} onSubmit=${save} onClose=${onClose} isWide>
    <p>${t("The fields that these rules name are hidden from all users: in lists, searches and files.")}</p>
    <${Field} label=${t("Rules")} hint=${t("One per line: orders-*:value.card.number, *:value.**.password, *:header.token, audit:key")}>
      <textarea name="rules" rows="8" value=${text ?? ""} onInput=${(event) => setText(event.target.value)} spellcheck="false"></textarea>
    </${Field}>
  </${Dialog}>`;
}
