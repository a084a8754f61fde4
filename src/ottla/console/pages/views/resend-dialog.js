// Resends dead letters: target and plan of the server, then exactly these letters.
import { post } from "../core/api.js";
import { bytes, count } from "../core/format.js";
import { html, useEffect, useState } from "../core/html.js";
import { t } from "../core/texts.js";
import { Badge, Check, Dialog, Field, Note, Problem, toast } from "../core/widgets.js";

const WAIT_MS = 300; // debounces the topic name field

const newToken = () => [...crypto.getRandomValues(new Uint8Array(12))].map((each) => each.toString(16).padStart(2, "0")).join("");

function Plan({ plan }) {
  return html`<div id="resend-plan" aria-live="polite">
    <p><b>${t("{0} letters, {1}", count(plan.letters), bytes(plan.bytes))}</b></p>
    <ul class="list">${plan.targets.map((target) => html`<li key=${target.topic}><bdi>${target.topic}</bdi>
      <span>${count(target.letters)} ${target.is_there ? null : html`<${Badge} kind="bad">${t("no such topic")}</${Badge}>`}</span></li>`)}</ul>
    ${plan.sent_before ? html`<${Note} kind="info">${t("{0} were already sent there", count(plan.sent_before))}</${Note}>` : null}
    ${plan.without_source ? html`<${Note} kind="warn">${t("{0} have no source topic: name a topic", count(plan.without_source))}</${Note}>` : null}
    ${plan.is_cut ? html`<${Note} kind="warn">${t("There are more; these are the oldest. Resend the others afterwards.")}</${Note}>` : null}
    ${plan.unread.length ? html`<${Note} kind="warn">${t("Not read:")} ${plan.unread.map((item) => item.reason).join("; ")}</${Note}>` : null}
  </div>`;
}

export function ResendDialog({ address, selection, onClose, onDone }) {
  const [isElsewhere, setElsewhere] = useState(false);
  const [topic, setTopic] = useState("");
  const [isAgain, setAgain] = useState(false);
  const [token] = useState(newToken);
  const [found, setFound] = useState({});
  const to = isElsewhere ? topic.trim() : null;
  const body = { ...selection, to, again: isAgain, token };
  useEffect(() => {
    let isOver = false;
    setFound({});
    if (to === "") return undefined;
    const timer = setTimeout(() => post(`${address}/dead-letters/resend-plans`, body).then(
      (plan) => isOver || setFound({ plan }),
      (error) => isOver || setFound({ error }),
    ), to === null ? 0 : WAIT_MS);
    return () => { isOver = true; clearTimeout(timer); };
  }, [to, isAgain]);
  const { plan, error } = found;
  const send = async () => {
    const answer = await post(`${address}/dead-letters/resends`, { ...body, ends: selection.letters ? null : plan.ends });
    const words = t("{0} sent, {1} skipped, {2} refused", count(answer.sent), count(answer.skipped), count(answer.refused));
    toast(words, answer.refused || answer.unsure ? "bad" : "good");
    if (answer.refused || answer.unsure) throw new Error([words, answer.unsure ? t("{0} may or may not have been written", count(answer.unsure)) : null, ...answer.problems].filter(Boolean).join("; "));
    onDone();
  };
  const isReady = Boolean(plan?.letters) && plan.targets.every((target) => target.is_there);
  return html`<${Dialog} title=${t("Resend dead letters")} submit=${plan?.letters ? t("Resend {0}", count(plan.letters)) : t("Resend")} isReady=${isReady} onSubmit=${send} onClose=${onClose}>
    <p>${t("Each letter is sent as the original record: key, value and headers, without the headers of the letter, with the current time. The letters remain.")}</p>
    ${selection.letters ? null : html`<p class="muted"><bdi>${selection.step}</bdi> · <bdi>${selection.reason}</bdi></p>`}
    <${Field} label=${t("Send to")}><select name="target" value=${isElsewhere ? "other" : "source"} onChange=${(event) => setElsewhere(event.target.value === "other")}>
      <option value="source">${t("the source topic of each")}</option>
      <option value="other">${t("another topic")}</option></select></${Field}>
    ${isElsewhere ? html`<${Field} label=${t("Topic")}><input name="topic" value=${topic} onInput=${(event) => setTopic(event.target.value)} spellcheck="false" autocomplete="off" /></${Field}>` : null}
    <${Problem} error=${error} />
    ${plan ? html`<${Plan} plan=${plan} />` : null}
    ${plan?.sent_before || isAgain ? html`<${Check} label=${t("Include letters that were already sent")} checked=${isAgain} onChange=${setAgain} />` : null}
  </${Dialog}>`;
}
