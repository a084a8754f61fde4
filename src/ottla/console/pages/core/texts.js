// t("Create topic") returns the translated text; "{0}" is replaced by the values that follow. English is in the code,
// Chinese in texts-zh.js (checked by tests/unit/console/test_pages.py).
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
  return found.replace(/\{(\d)\}/g, (_, index) => values[index]);
}

export function choose(name) {
  localStorage.setItem("ottla.language", name);
  location.reload();
}
