// Elements, and text that may be hostile: only text nodes are made from it, never HTML.

// h("button", {class: "x", onclick: f, "aria-label": "y"}, "text", child)
export function h(tag, properties = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(properties)) {
    if (value === undefined || value === null || value === false) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (name in element && typeof value !== "string") element[name] = value;
    else if (name === "value") element.value = value;
    else element.setAttribute(name, value === true ? "" : value);
  }
  element.append(...children.flat().filter((child) => child !== null && child !== undefined));
  return element;
}

export const $ = (id) => document.getElementById(id);

// Marks of direction and control characters would reorder or hide what is read: they are shown by number or picture.
export function visible(text) {
  return text
    .replace(/[\u061c\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff]/g,
      (c) => `⟨U+${c.charCodeAt(0).toString(16).toUpperCase().padStart(4, "0")}⟩`)
    .replace(/[\u0000-\u0008\u000b-\u001f]/g, (c) => String.fromCharCode(0x2400 + c.charCodeAt(0)))
    .replace(/[\u007f-\u009f]/g, "\ufffd");
}

const kShown = 20000; // characters of one message

// Long texts are shown in part, with a button for the rest.
export function plain(text) {
  const box = h("div", {class: "plaintext", dir: "auto"}, visible(text.slice(0, kShown)));
  if (text.length > kShown)
    box.append(" ", h("button", {type: "button", onclick: () => box.replaceChildren(visible(text))},
      `Show all ${text.length.toLocaleString()} characters`));
  return box;
}

export function bytes(count) {
  const units = ["B", "KiB", "MiB", "GiB", "TiB"];
  let unit = 0;
  while (count >= 1024 && unit < 4) count /= 1024, ++unit;
  return `${unit ? count.toFixed(1) : count} ${units[unit]}`;
}

// Without a secure context (plain HTTP from another machine) there is no clipboard API.
export async function copyText(text) {
  try {
    await navigator.clipboard.writeText(text);
  } catch {
    const field = h("textarea", {class: "unseen", "aria-hidden": "true"});
    field.value = text;
    document.body.append(field);
    field.select();
    document.execCommand("copy");
    field.remove();
  }
}

// Copies what `text` returns, and says so for a moment.
export function copyButton(text, label) {
  const button = h("button", {type: "button", class: "plain copy", "aria-label": label, onclick: async () => {
    await copyText(text());
    button.textContent = "Copied";
    setTimeout(() => { button.textContent = "Copy"; }, 1500);
  }}, "Copy");
  return button;
}

export function notice(text) {
  $("notice").hidden = !text;
  $("notice").textContent = text ? visible(text) : "";
}
