// Receivers of alerts of all clusters: webhooks and mail.
import { path, post, put, remove } from "../core/api.js";
import { html, useState } from "../core/html.js";
import { useLive } from "../core/live.js";
import { t } from "../core/texts.js";
import { Badge, Button, Dialog, Empty, Field, Note, Problem, TypeTheName, toast } from "../core/widgets.js";

const TYPES = ["slack", "dingtalk", "feishu", "wecom", "webhook", "mail"];
const SECURITIES = ["starttls", "tls", "none"];
const NEW = { type: "slack", url: "", secret: "", server: "", port: 0, from: "", to: [], security: "starttls", username: "", password: "" };

function typeWords(type) {
  switch (type) {
    case "slack": return "Slack";
    case "dingtalk": return t("DingTalk");
    case "feishu": return t("Feishu");
    case "wecom": return t("WeCom");
    case "mail": return t("Mail");
    default: return t("Custom webhook (JSON)");
  }
}

function MailFields({ receiver, set }) {
  const text = (key) => (event) => set({ [key]: event.target.value });
  return html`<div class="fields">
      <${Field} label=${t("Mail server")}><input name="server" value=${receiver.server} onInput=${text("server")} spellcheck="false" /></${Field}>
      <${Field} label=${t("Encryption")}><select name="security" value=${receiver.security} onChange=${text("security")}>
        ${SECURITIES.map((each) => html`<option key=${each} value=${each} selected=${each === receiver.security}>${each === "none" ? t("none") : each}</option>`)}</select></${Field}>
      <${Field} label=${t("Port")} hint=${t("0: the default port")}><input name="port" type="number" min="0" max="65535" value=${receiver.port} onInput=${(event) => set({ port: Number(event.target.value) })} /></${Field}>
    </div>
    <div class="fields">
      <${Field} label=${t("Sender")}><input name="from" value=${receiver.from} onInput=${text("from")} spellcheck="false" /></${Field}>
      <${Field} label=${t("Recipients")} hint=${t("Separate several with commas")}><input name="to" value=${receiver.to.join(", ")} spellcheck="false"
        onChange=${(event) => set({ to: event.target.value.split(",").map((each) => each.trim()).filter(Boolean) })} /></${Field}>
    </div>
    <div class="fields">
      <${Field} label=${t("User")} hint=${t("Empty: no login")}><input name="username" value=${receiver.username} onInput=${text("username")} autocomplete="off" spellcheck="false" /></${Field}>
      <${Field} label=${t("Password")}><input name="password" type="password" value=${receiver.password} onInput=${text("password")} autocomplete="new-password" /></${Field}>
    </div>`;
}

function ReceiverDialog({ old, onClose, onDone }) {
  const [name, setName] = useState(old?.name ?? "");
  const [receiver, setReceiver] = useState({ ...NEW, ...old?.receiver });
  const set = (change) => setReceiver({ ...receiver, ...change });
  const send = async () => {
    const { "allow-private": _, ...body } = receiver;
    await put(path`/api/receivers/${name}`, body);
    toast(t("Receiver {0} saved", name));
    onDone();
    onClose();
  };
  const isMail = receiver.type === "mail";
  const isSigned = receiver.type === "dingtalk" || receiver.type === "feishu";
  return html`<${Dialog} isWide title=${old ? t("Receiver {0}", old.name) : t("Add receiver")} submit=${t("Save")} isReady=${name && (isMail ? receiver.server && receiver.from : receiver.url)} onSubmit=${send} onClose=${onClose}>
    <div class="fields">
      ${old ? null : html`<${Field} label=${t("Name")}><input name="name" value=${name} onInput=${(event) => setName(event.target.value)} autocomplete="off" maxlength="100" autofocus /></${Field}>`}
      <${Field} label=${t("Kind")}><select name="type" value=${receiver.type} onChange=${(event) => set({ type: event.target.value })}>
        ${TYPES.map((type) => html`<option key=${type} value=${type} selected=${type === receiver.type}>${typeWords(type)}</option>`)}</select></${Field}>
    </div>
    ${isMail
      ? html`<${MailFields} receiver=${receiver} set=${set} />`
      : html`<${Field} label=${t("Webhook URL")} hint=${t("The URL is a secret and is not shown again")}>
            <input name="url" value=${receiver.url} onInput=${(event) => set({ url: event.target.value })} autocomplete="off" spellcheck="false" /></${Field}>
          ${isSigned ? html`<${Field} label=${t("Secret")} hint=${t("For a bot that requires signed messages")}><input name="secret" type="password" value=${receiver.secret} onInput=${(event) => set({ secret: event.target.value })} autocomplete="new-password" /></${Field}>` : null}`}
  </${Dialog}>`;
}

function Receiver({ row, onChange, onDrop }) {
  const [tried, setTried] = useState(null);
  const attempt = async () => {
    setTried({ kind: "info", text: t("Sending") });
    try {
      await post(path`/api/receivers/${row.name}/trials`);
      setTried({ kind: "good", text: t("Delivered.") });
    } catch (problem) {
      setTried({ kind: "bad", text: problem.message });
    }
  };
  const { receiver } = row;
  return html`<div class="card" data-receiver=${row.name}>
    <h2><bdi>${row.name}</bdi> <${Badge} kind="info">${typeWords(receiver.type)}</${Badge}></h2>
    <p class="mono wrapped">${receiver.type === "mail" ? `${receiver.server} → ${receiver.to.join(", ")}` : receiver.url}</p>
    <p class="muted">${row.rules.length ? html`${t("Rules:")} <bdi>${row.rules.join(", ")}</bdi>` : t("No rule uses it yet.")}</p>
    <div class="bar"><${Button} onClick=${attempt}>${t("Send test")}</${Button}><${Button} onClick=${onChange}>${t("Change")}</${Button}>
      <${Button} kind="danger" disabled=${row.rules.length > 0} title=${row.rules.length ? t("Rules use it: change these first") : null} onClick=${onDrop}>${t("Remove")}</${Button}></div>
    ${tried ? html`<p></p><${Note} kind=${tried.kind}>${tried.text}</${Note}>` : null}
  </div>`;
}

export function Receivers({ cluster }) {
  const { data, error, reload } = useLive("/api/receivers", ["alerts"], cluster);
  const [asked, setAsked] = useState(null);
  const close = () => setAsked(null);
  const drop = async () => {
    await remove(path`/api/receivers/${asked.row.name}`);
    reload();
    close();
  };
  if (!data) return html`<${Problem} error=${error} />`;
  const add = html`<${Button} kind="primary" onClick=${() => setAsked({ kind: "change" })}>${t("Add receiver")}</${Button}>`;
  return html`<${Problem} error=${error} />
    ${data.receivers.length ? html`<div class="bar">${add}</div>` : html`<${Empty} title=${t("No receivers yet")}>${t("A receiver is a webhook or a list of mail addresses. Rules of all clusters can use it.")}<p></p>${add}</${Empty}>`}
    <div class="cards">${data.receivers.map((row) => html`<${Receiver} key=${row.name} row=${row} onChange=${() => setAsked({ kind: "change", row })} onDrop=${() => setAsked({ kind: "drop", row })} />`)}</div>
    ${asked?.kind === "change" ? html`<${ReceiverDialog} old=${asked.row} onClose=${close} onDone=${reload} />` : null}
    ${asked?.kind === "drop" ? html`<${TypeTheName} title=${t("Remove {0}?", asked.row.name)} submit=${t("Remove")} name=${asked.row.name} onSubmit=${drop} onClose=${close} />` : null}`;
}
