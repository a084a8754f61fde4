// Translates error messages of the server. It sends a code, an English message and, if that has names or numbers, its
// pattern ("there is no topic {0}") with the values. Messages of brokers are kept, after the meaning of their code.
import { codes, patterns } from "./server-errors-zh.js";
import { language, t } from "./texts.js";

const ROLE = "the role of {1}";
const roleWord = (role) => (role === "admin" ? t("admin") : role === "operator" ? t("operator") : t("viewer"));

export function errorText({ error = "", message = "", sentence, values = [] }) {
  if (language !== "zh") return message;
  const pattern = patterns[sentence ?? message];
  if (pattern) {
    const shown = sentence?.includes(ROLE) ? [values[0], roleWord(values[1])] : values;
    return sentence ? pattern.replace(/\{(\d)\}/g, (_, index) => shown[index]) : pattern;
  }
  return codes[error] ? `${codes[error]}（${message}）` : message;
}
