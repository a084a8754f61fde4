// Requests to /api. Errors are ApiError with the translated message of the server.
import { errorText } from "./server-errors.js";

export class ApiError extends Error {
  constructor(status, code, message) {
    super(message);
    this.status = status;
    this.code = code;
  }
}

export async function call(method, path, body) {
  const options = { method, headers: { Accept: "application/json" }, credentials: "same-origin" };
  if (body !== undefined) {
    options.headers["Content-Type"] = "application/json";
    options.body = JSON.stringify(body);
  }
  let answer;
  try {
    answer = await fetch(path, options);
  } catch {
    throw new ApiError(0, "OFFLINE", errorText({ message: "the console does not answer" }));
  }
  const text = await answer.text();
  const data = text ? JSON.parse(text) : null;
  if (!answer.ok) {
    if (answer.status === 401 && !path.startsWith("/api/session")) window.dispatchEvent(new Event("ottla-signed-out"));
    throw new ApiError(answer.status, data?.error ?? "", data ? errorText(data) : answer.statusText);
  }
  return data;
}

export const get = (path) => call("GET", path);
export const post = (path, body) => call("POST", path, body);
export const put = (path, body) => call("PUT", path, body);
export const patch = (path, body) => call("PATCH", path, body);
export const remove = (path) => call("DELETE", path);

// Encodes the values of a path: path`/api/clusters/${cluster}/groups/${group}`
export const path = (words, ...values) =>
  words.reduce((made, word, index) => made + encodeURIComponent(values[index - 1]) + word);
