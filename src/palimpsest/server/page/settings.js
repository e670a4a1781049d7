// The dialog of settings.
import {$, h, visible} from "./dom.js";
import {saveSettings, settings} from "./store.js";

function field(name, label, help, properties = {}) {
  const id = `set-${name}`;
  const {tag = "input", options, ...rest} = properties;
  const input = h(tag, {id, "aria-describedby": help ? `${id}-help` : null, ...rest}, options ?? []);
  if (rest.type === "checkbox") input.checked = settings[name];
  else input.value = settings[name];
  input.addEventListener("change", () => {
    settings[name] = rest.type === "checkbox" ? input.checked : input.value;
    saveSettings();
    input.dispatchEvent(new CustomEvent("set", {bubbles: true}));
  });
  return h("div", {class: "field"}, h("label", {for: id}, label), input, help ? h("small", {id: `${id}-help`}, help) : null);
}

const number = (step, min, max) => ({type: "number", step, min, max, inputmode: "decimal"});

// The server's own values, from /props: shown where a setting is empty.
let sampling = {};
export function setSampling(params) {
  sampling = params ?? {};
}
const sampled = (name, ...range) => ({...number(...range), placeholder: visible(String(sampling[name] ?? ""))});

export function fillSettings() {
  const group = (title, ...fields) => h("fieldset", {}, h("legend", {}, title), fields.flat());
  $("fields").replaceChildren(
    group("Server", field("key", "API key", "Only for servers that were started with --api-key. Kept in this browser.", {type: "password", autocomplete: "off"}),
      field("session", "Session", "Save each answer's cache on the server under this name (needs --session-path). Empty: not saved.", {type: "text", maxlength: "64", pattern: "[A-Za-z0-9_\\-][A-Za-z0-9._\\-]*"})),
    group("Conversation", field("system", "System prompt", "Instructions before the first message.", {tag: "textarea", dir: "auto"}),
      field("tools", "Tools", "A JSON list of functions that the model may call, as in OpenAI's API. Empty: none.", {tag: "textarea", spellcheck: "false"})),
    group("Sampling", field("temperature", "Temperature", "0: always the likeliest token. Higher: more varied. Empty: the server's.", sampled("temperature", "0.05", "0", "5")),
      field("top_p", "Top p", "Only the likeliest tokens that together have this probability; 1: all. Empty: the server's.", sampled("top_p", "0.01", "0", "1")),
      field("top_k", "Top k", "Only this many of the likeliest tokens; 0: all. Empty: the server's.", sampled("top_k", "1", "0")),
      field("min_p", "Min p", "Only tokens with at least this share of the likeliest one's probability. Empty: the server's.", sampled("min_p", "0.01", "0", "1")),
      field("seed", "Seed", "The same seed gives the same text. Empty: a new one each time.", number("1", "0")),
      field("max_tokens", "Max tokens", "Of one answer.", number("1", "1"))));
}
