// The choice of the model, where the server has many.
import {get} from "./api.js";
import {$, h, visible} from "./dom.js";
import {saveSettings, settings} from "./store.js";

// `changed` is called when another one was chosen.
export async function loadModels(changed) {
  const many = (await get("/v1/models")).data.filter(({status}) => status);
  if (!many.some(({id}) => id === settings.model))
    settings.model = (many.find(({status}) => status.value === "loaded") ?? many[0])?.id ?? "";
  if (!many.length) return;
  const select = h("select", {"aria-label": "Model", onchange: () => {
    settings.model = select.value;
    saveSettings();
    changed();
  }}, ...many.map(({id, status}) => h("option", {value: id}, visible(id) + (status.value === "failed" ? " (cannot be loaded)" : ""))));
  select.value = settings.model;
  $("model").replaceChildren(select);
}
