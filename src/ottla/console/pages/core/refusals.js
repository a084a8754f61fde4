// What the server refuses, in the language of the reader. It sends a code, an English message and, where that holds names
// or numbers, its pattern ("there is no topic {0}") with the values. Words of brokers stay as they are, behind what their
// code means.
import { codes, patterns } from "./refusals-zh.js";
import { language, t } from "./texts.js";

const ROLE = "the role of {1}";
const roleWord = (role) => (role === "admin" ? t("admin") : role === "operator" ? t("operator") : t("viewer"));

export function told({ error = "", message = "", sentence, values = [] }) {
  if (language !== "zh") return message;
  const pattern = patterns[sentence ?? message];
  if (pattern) {
    const shown = sentence?.includes(ROLE) ? [values[0], roleWord(values[1])] : values;
    return sentence ? pattern.replace(/\{(\d)\}/g, (_, place) => shown[place]) : pattern;
  }
  return codes[error] ? `${codes[error]}（${message}）` : message;
}
