// The dialog for metrics addresses: edit, test at every broker, save.
import { path, post, put } from "../core/api.js";
import { html, useState } from "../core/html.js";
import { useLive } from "../core/live.js";
import { t } from "../core/texts.js";
import { Badge, Button, Dialog, Field, Note, toast } from "../core/widgets.js";

function Form({ cluster, old, onClose, onDone }) {
  const [address, setAddress] = useState(old.address);
  const [login, setLogin] = useState(old.login);
  const [tested, setTested] = useState(null);
  const test = async () => {
    setTested({ isBusy: true });
    try {
      setTested(await post(path`/api/clusters/${cluster}/metric-tests`, { address, login }));
    } catch (problem) {
      setTested({ problem: problem.message });
    }
  };
  const send = async () => {
    await put(path`/api/clusters/${cluster}/metrics`, { address, login });
    toast(t("Metrics addresses saved"));
    onDone?.();
    onClose();
  };
  return html`<${Dialog} title=${t("Metrics of the brokers")} submit=${old.is_changeable ? t("Save") : null} onSubmit=${send} onClose=${onClose}>
    ${old.is_changeable ? null : html`<${Note}>${t("Configured on the command line.")}</${Note}>`}
    <${Field} label=${t("Address")} hint=${t("One pattern for all brokers: http://{host}:9404 for ottla, http://{host}:8778/jolokia for Apache Kafka with Jolokia. Or one per broker: 1=http://…, 2=http://…")}>
      <textarea name="address" value=${address} onInput=${(event) => setAddress(event.target.value)} spellcheck="false" placeholder="http://{host}:9404"></textarea></${Field}>
    <${Field} label=${t("Login")} hint=${t("NAME:PASSWORD, if the endpoint requires it. It is not shown again.")}>
      <input name="login" type="password" value=${login} onInput=${(event) => setLogin(event.target.value)} autocomplete="off" /></${Field}>
    <div class="bar"><${Button} onClick=${test} disabled=${!address || tested?.isBusy}>${t("Test")}</${Button}></div>
    ${tested?.isBusy ? html`<${Note}>${t("Connecting")}</${Note}>` : null}
    ${tested?.problem ? html`<${Note} kind="bad">${tested.problem}</${Note}>` : null}
    ${tested?.brokers
      ? html`<ul class="list">${tested.brokers.map((each) => html`<li key=${each.broker}><span>${t("Broker {0}", each.broker)} <span class="mono">${each.address}</span></span>
          <span>${each.problem ? each.problem : html`<${Badge} kind="good">${t("reachable")}</${Badge}>`}</span></li>`)}</ul>`
      : null}
  </${Dialog}>`;
}

export function MetricsDialog({ cluster, onClose, onDone }) {
  const { data, error } = useLive(path`/api/clusters/${cluster}/metrics`);
  if (error) return html`<${Dialog} title=${t("Metrics of the brokers")} onClose=${onClose}><${Note} kind="bad">${error.message}</${Note}></${Dialog}>`;
  return data ? html`<${Form} cluster=${cluster} old=${data} onClose=${onClose} onDone=${onDone} />` : null;
}
