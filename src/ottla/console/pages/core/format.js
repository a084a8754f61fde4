// Formats numbers, sizes and times in the language and time zone of the browser.
import { language, t } from "./texts.js";

const locale = language === "zh" ? "zh-CN" : navigator.language.startsWith("en") ? navigator.language : "en";
const whole = new Intl.NumberFormat(locale);
const short = new Intl.NumberFormat(locale, { maximumSignificantDigits: 3 });
const clock = new Intl.DateTimeFormat(locale, {
  year: "numeric", month: "2-digit", day: "2-digit", hour: "2-digit", minute: "2-digit", second: "2-digit",
  hour12: false,
});
const NONE = "–";
const UNITS = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];

export const count = (number) => (number == null ? NONE : whole.format(number));
export const time = (ms) => (ms ? clock.format(ms) : NONE);

export function bytes(number) {
  if (number == null) return NONE;
  let unit = 0;
  while (number >= 1024 && unit < UNITS.length - 1) {
    number /= 1024;
    unit += 1;
  }
  return `${short.format(number)} ${UNITS[unit]}`;
}

export function rate(number) {
  if (number == null) return NONE;
  if (number === 0) return "0";
  return number < 0.1 ? "<0.1" : number < 1000 ? short.format(number) : whole.format(Math.round(number));
}

export function compact(number) {
  if (number == null) return NONE;
  return new Intl.NumberFormat(locale, { notation: "compact", maximumSignificantDigits: 3 }).format(number);
}

// A duration.
export function span(ms) {
  if (ms == null) return NONE;
  return ms < 1000 ? t("{0} ms", whole.format(ms)) : t("{0} s", short.format(ms / 1000));
}

export function age(ms) {
  const seconds = Math.max(0, Math.round(ms / 1000));
  if (seconds < 60) return t("{0} s", seconds);
  if (seconds < 3600) return t("{0} min", Math.floor(seconds / 60));
  return t("{0} h", Math.floor(seconds / 3600));
}
