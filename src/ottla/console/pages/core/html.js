// Preact with htm: components are functions that return html`...`. Text is always text: nothing here sets markup.
import { h, render, createContext, Fragment } from "../vendor/preact.js";
import htm from "../vendor/htm.js";

export * from "../vendor/hooks.js";
export const html = htm.bind(h);
export { render, createContext, Fragment };
