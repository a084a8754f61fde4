// Silences: for a time nobody is told of what opens.
import { path, post, remove } from "../core/api.js";
import { html, useState } from "../core/html.js";
import { t } from "../core/texts.js";
import { Dialog, Field, toast } from "../core/widgets.js";

const MINUTES = [30, 60, 240, 1440, 10080];
const spanWords = (minutes) => (minutes < 60 ? t("{0} min", minutes) : t("{0} h", minutes / 60));

// For a time nothing of a rule, or of one of its alerts, is sent.
export function SilenceDialog({ cluster, rule, subject = "*", onClose, onDone }) {
  const [minutes, setMinutes] = useState(60);
  const send = async () => {
    await post(path`/api/clusters/${cluster}/alert-silences`, { rule, subject, minutes: Number(minutes) });
    toast(t("Silent for {0}", spanWords(minutes)));
    onDone();
    onClose();
  };
  return html`<${Dialog} title=${t("Silence {0}", subject === "*" ? rule : `${rule}: ${subject}`)} submit=${t("Silence")} onSubmit=${send} onClose=${onClose}>
    <${Field} label=${t("For")}><select name="minutes" value=${minutes} onChange=${(event) => setMinutes(event.target.value)}>
      ${MINUTES.map((each) => html`<option key=${each} value=${each} selected=${each === Number(minutes)}>${spanWords(each)}</option>`)}</select></${Field}>
    <p class="muted">${t("Alerts go on to open and close here, but nobody is told of an opening. If one is still open afterwards, it is told then.")}</p>
  </${Dialog}>`;
}

export const endSilence = (cluster, silence) => remove(path`/api/clusters/${cluster}/alert-silences/${silence}`);
