// t("Create topic") is the text in the language of the reader; "{0}" is replaced by what follows.
// English is what stands in the code, texts-zh.js has it all in Chinese (tests/unit/console/test_texts.py sees to it).
import { chinese } from "./texts-zh.js";

export const LANGUAGES = { en: "English", zh: "中文" };

function chosen() {
  const kept = localStorage.getItem("ottla.language");
  if (kept in LANGUAGES) return kept;
  return navigator.language.toLowerCase().startsWith("zh") ? "zh" : "en";
}

export const language = chosen();
document.documentElement.lang = language === "zh" ? "zh-CN" : "en";

export function t(text, ...values) {
  const found = language === "zh" ? chinese[text] ?? text : text;
  return found.replace(/\{(\d)\}/g, (_, place) => values[place]);
}

export function choose(name) {
  localStorage.setItem("ottla.language", name);
  location.reload();
}
