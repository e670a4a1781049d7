// The choice of the method and the budget, above the message; of two to compare.
import {get} from "./api.js";
import {$, h, visible} from "./dom.js";
import {saveSettings, settings} from "./store.js";

let methods = [];
let own = "";  // the server's default method
export async function loadMethods(cache) {
  own = cache.split(":")[0];
  methods = (await get("/v1/methods")).data;
  showCaches();
}

const methodOf = (suffix) => methods.find((method) => method.id === (settings[`method${suffix}`] || own));

export function labelOf(method, budget) {
  return `${method || own || "default method"}${budget ? `, budget ${budget}` : ""}`;
}

function choice(suffix) {
  const which = suffix ? "the second cache" : "the cache", name = `method${suffix}`, budget = `budget${suffix}`;
  const change = (setting, value) => {
    settings[setting] = value;
    saveSettings();
    showCaches();
  };
  const select = h("select", {id: name, "aria-label": `Method of ${which}`, "aria-describedby": `about${suffix}`, onchange: () => {
    change(name, select.value);
    $(name).focus();
  }},
    h("option", {value: ""}, `${visible(own || "default")} (the server's)`),
    ...methods.map(({id, error}) => h("option", {value: id, disabled: Boolean(error), title: error && visible(error)},
      visible(id) + (error ? error.includes("beside the model") ? " (needs a file)" : " (cannot run here)" : ""))));
  select.value = settings[name];
  if (select.selectedIndex < 0) select.append(h("option", {value: settings[name], selected: true}, visible(settings[name])));
  const method = methodOf(suffix);
  const number = h("input", {id: budget, type: "number", min: "1", step: "1", inputmode: "numeric", value: settings[budget], "aria-label": `Budget of ${which}: tokens that each head keeps`,
    placeholder: method?.budget > 0 ? String(method.budget) : "", disabled: method?.budget === 0, onchange: () => change(budget, number.value)});
  const missing = methods.filter((each) => each.error);
  return h("div", {class: "cache"}, h("span", {}, suffix ? "beside" : "Cache"), select, h("label", {}, "budget", number),
    !suffix && missing.length ? h("details", {class: "missing"}, h("summary", {}, `${missing.length} cannot run here`),
      h("ul", {}, missing.map(({error}) => h("li", {}, visible(error))))) : null,
    h("p", {class: `about${method?.error ? " refused" : ""}`, id: `about${suffix}`, title: visible(method?.summary ?? "")}, visible(method?.error ?? method?.summary ?? "")));
}

export function showCaches() {
  $("caches").replaceChildren(choice(""), ...(settings.compare ? [choice("2")] : []));
}

// The second cache of a comparison, if none was chosen: one that keeps every token, or evicts where the first does not.
export function chooseSecond() {
  if (settings.method2 && (settings.method2 !== settings.method || settings.budget2 !== settings.budget)) return;
  const first = settings.method || own;
  settings.method2 = first === "full" ? "streaming" : "full";
  settings.budget2 = "";
}
